"""Protocols: how often a task is played and how answers are drawn, by name, and the comparisons that papers report."""
