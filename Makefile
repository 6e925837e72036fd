# Everything a person runs from a clone. `make help` lists it.
.DEFAULT_GOAL := help
SHELL := /bin/sh
PYTHON_ENV := .venv/bin/python

# What libraries would write into the home folder goes under the clone.
export VLLM_CACHE_ROOT := $(CURDIR)/.cache/vllm
export VLLM_CONFIG_ROOT := $(CURDIR)/.cache/vllm-config
export TORCHINDUCTOR_CACHE_DIR := $(CURDIR)/.cache/torchinductor
export TRITON_CACHE_DIR := $(CURDIR)/.cache/triton
export MPLCONFIGDIR := $(CURDIR)/.cache/matplotlib
export VLLM_NO_USAGE_STATS := 1
export HF_HUB_DISABLE_TELEMETRY := 1

# Arguments for pytest: make test PYTEST_ARGS='tests/llm_envs -m "not slow"'
PYTEST_ARGS ?=

.PHONY: help
help:  ## List the targets
	@sed -n 's/^\([a-z-]*\):.*## /\1\t/p' $(MAKEFILE_LIST) | while IFS="$$(printf '\t')" read -r name text; do \
		printf '  make %-14s %s\n' "$$name" "$$text"; done

.PHONY: setup
setup:  ## Create .venv and install what the demo needs
	@scripts/setup

.PHONY: setup-dev
setup-dev:
	@scripts/setup dev

.PHONY: demo
demo: setup  ## A small model plays math-2agent, then the team trains for a few updates
	@$(PYTHON_ENV) -m benchmarks.demo

.PHONY: test
test: setup-dev  ## Run all tests
	@$(PYTHON_ENV) -m pytest --durations=20 $(PYTEST_ARGS)

.PHONY: lint
lint: setup-dev  ## Check style, format and types
	@$(PYTHON_ENV) -m ruff check .
	@$(PYTHON_ENV) -m ruff format --check .
	@$(PYTHON_ENV) -m mypy

# Arguments of the measurements: make bench BENCH_ARGS='--only learner step'
BENCH_ARGS ?=

.PHONY: bench
bench: setup  ## Measure speed and memory beside peers and bounds (half an hour); with BENCH_ARGS=--page, write the page
	@$(PYTHON_ENV) -m benchmarks.performance $(BENCH_ARGS)

# Seconds that the search goes on for, in all: make exploit-search SECONDS=600
SECONDS ?= 60

.PHONY: exploit-search
exploit-search: setup  ## Search for texts that make an environment pay for an unsolved task (SECONDS=60)
	@$(PYTHON_ENV) -m benchmarks.exploits --seconds $(SECONDS)

.PHONY: studies
studies: setup  ## Repeat the studies in docs/studies: many hours; what is done in runs/ is kept
	@scripts/studies

.PHONY: clean
clean:  ## Remove .venv, caches and build leftovers; results in runs/ stay
	@rm -rf .venv .cache .hypothesis .mypy_cache .pytest_cache .ruff_cache build dist llm_envs.egg-info
	@find llm_envs trainers benchmarks tests -name __pycache__ -type d -prune -exec rm -rf {} +
