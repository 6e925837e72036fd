"""Rollouts: environments and a team go in, turn records come out."""
