"""Policies, rollouts, algorithms and learners for LLM teams. Import from the submodules: nothing is loaded here."""
