"""Measure any policy on any environment: the runner, its results folder, metrics and reports."""
