"""Giving devices to the engines and learners of a run by the load that they were measured to have."""
