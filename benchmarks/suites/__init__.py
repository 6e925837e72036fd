"""Suites: several runs that belong together, described in one file and played by one command."""
