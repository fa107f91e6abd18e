# What a developer types. Each command makes the environment that it needs first: .venv, with the extras of its own.

PYTHON ?= python3
BIN := .venv/bin
INSTALL := $(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt
# Eight processes with one thread each: more only pay for importing torch.
PYTEST_OPTIONS ?= -n auto --maxprocesses 8

.DEFAULT_GOAL := help
.PHONY: help demo test lint types clean
.NOTPARALLEL:
.SECONDARY:

help: ## list these commands
	@grep -E '^[a-z]+:.*##' Makefile | sed -E 's/^([a-z]+):.*## (.*)/make \1\t\2/' | expand -t 14

demo: .venv/.cli ## the library at work in half a minute
	$(BIN)/python -m bayesprop demo

test: .venv/.test ## all tests
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest $(PYTEST_OPTIONS)

lint: .venv/.lint ## style, and the direction of imports
	$(BIN)/ruff check .
	$(BIN)/lint-imports

types: .venv/.lint ## static types
	$(BIN)/pyright

clean: ## remove the environment, caches and builds
	rm -rf .venv build dist .pytest_cache .ruff_cache .import_linter_cache
	find src tests benchmarks -name __pycache__ -type d -prune -exec rm -rf {} +

# torch first and by itself, so that a failure of the largest download is seen as what it is.
.venv/.torch: constraints.txt
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "bayesprop needs Python 3.11 or newer")'
	$(PYTHON) -m venv .venv
	$(INSTALL) torch==2.13.0
	@touch $@

# The file .venv/.test says that the extra "test" is installed, and so on.
.venv/.%: .venv/.torch pyproject.toml constraints.txt
	$(INSTALL) -e '.[$*]'
	@touch $@
