# Everything a developer types. `make help` lists it; the environment is made once and is quick when up to date.

PYTHON ?= python3
# The plain Linux build of torch brings gigabytes of CUDA. Set TORCH_INDEX to the address of an index with the
# build you want: make setup TORCH_INDEX=<address of PyTorch's CPU wheels>
TORCH_INDEX ?=
TORCH := torch==2.13.0
# Test workers. Each computes on one thread; one more than the cores, since some wait for processes they started.
JOBS ?= 3
SCHEDULES ?= 1000000
# For `make dist`: where files of the repository can be read, as in https://host/owner/tolfl/blob/main. The README of the
# package points there; without it, its links lead nowhere on a package index.
LINKS ?=
# Failures for `make soak`.
FAILURES ?= 2000

# Where it is set, every process that a test starts would compile all modules again.
unexport PYTHONDONTWRITEBYTECODE

BIN := .venv/bin
# Apps in environments of their own, with the oldest and the newest flwr; each is made once.
FLWR := .venv-flwr-newest/.up-to-date .venv-flwr-oldest/.up-to-date
AS_ROOT := $(if $(filter-out 0,$(shell id -u)),sudo -n)
STAMP := .venv/.up-to-date
BASE_STAMP := .venv/.base-is-up-to-date
FLOWER_BIN := .venv-flower/bin
FLOWER_STAMP := .venv-flower/.up-to-date
FLOWER_PINS := benchmarks/flower/constraints.txt
FLOWER_INSTALL := $(FLOWER_BIN)/python -m pip install --quiet --disable-pip-version-check
# More options for `make bench-flower`, such as FLOWER='--devices 10 100'
FLOWER ?=
PIP_INSTALL := $(BIN)/python -m pip install --quiet --disable-pip-version-check
ALGORITHM := src/tolfl/core,src/tolfl/kernel,src/tolfl/learners,src/tolfl/protocol
TESTED := OMP_NUM_THREADS=1 $(BIN)/coverage run
PYTEST := -m pytest -n $(JOBS)

# Without the theme's notice about its own future.
MKDOCS := NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs

.DEFAULT_GOAL := help
.PHONY: help setup demo test tools test-all test-flower check docs docs-serve diagrams bench bench-flower bench-flower-app bench-flower-deployed screenshots explore soak dist clean

help: ## show this list
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:[^#]*## /\t/' | expand -t 14

setup: $(STAMP) ## make the virtual environment in .venv, unless it is up to date

# What the demonstration needs: no torch, and no tools of developers.
$(BASE_STAMP): pyproject.toml constraints.txt hatch_build.py $(wildcard src/tolfl/kernel/*.[ch])
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11, 4))' \
	  || { echo "tolfl needs Python 3.11.4 or newer: name one with PYTHON=..., as in make setup PYTHON=python3.12" >&2; exit 1; }
	@$(PYTHON) -c 'import ensurepip, venv' 2>/dev/null \
	  || { echo "$(PYTHON) cannot make virtual environments: install its venv module (Debian, Ubuntu: apt install python3-venv)" >&2; exit 1; }
	test -x $(BIN)/python || $(PYTHON) -m venv .venv
	$(PIP_INSTALL) -c constraints.txt hatchling
	$(PIP_INSTALL) -c constraints.txt --no-build-isolation -e '.[study,tables]'
	@touch $@

$(STAMP): $(BASE_STAMP)
	$(PIP_INSTALL) --no-deps $(if $(TORCH_INDEX),--index-url $(TORCH_INDEX)) $(TORCH)
	$(PIP_INSTALL) -c constraints.txt pip # older ones know no dependency groups
	$(PIP_INSTALL) -c constraints.txt --group dev
	@touch $@

demo: $(BASE_STAMP) ## ten real devices learn a detector, their server is killed half way, the rest goes on and raises alarms
	$(BIN)/tolfl demo

test: setup ## run the tests, without the slow ones, and report the coverage of the algorithm
	$(BIN)/coverage erase
	TOLFL_QUICK=1 $(TESTED) --source=$(ALGORITHM) $(PYTEST) --dist worksteal --durations 25 -m 'not slow'
	@$(MAKE) --no-print-directory coverage

tools: .arm64/.up-to-date ## install what only slow tests need, from Debian's packages: a browser, clang, a compiler and emulator for ARM, its Python
	@for tool in chromedriver chromium clang gcc aarch64-linux-gnu-gcc qemu-aarch64; do \
	  command -v $$tool >/dev/null || exec $(MAKE) --no-print-directory install-tools; done

.PHONY: install-tools
install-tools:
	$(AS_ROOT) apt-get update -qq </dev/null
	$(AS_ROOT) env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends \
	  chromium chromium-driver clang gcc gcc-aarch64-linux-gnu libc6-dev-arm64-cross qemu-user </dev/null

# A Python for 64-bit ARM, which an emulator runs, and the packages of a device.
.arm64/.up-to-date: tests/net/make_arm64.sh constraints.txt | setup
	tests/net/make_arm64.sh .arm64 $(BIN)/python
	@touch $@

test-all: setup tools $(FLWR) ## run every test, and report the coverage of everything
	$(BIN)/coverage erase
	$(TESTED) $(PYTEST)
	@$(MAKE) --no-print-directory coverage

test-flower: setup $(FLWR) ## run the tests with Flower apps, on the oldest and the newest flwr that work
	TOLFL_QUICK=1 OMP_NUM_THREADS=1 $(BIN)/python $(PYTEST) tests/flower

.venv-flwr-%/.up-to-date: tests/flower/%.txt
	test -x .venv-flwr-$*/bin/python || $(PYTHON) -m venv .venv-flwr-$*
	.venv-flwr-$*/bin/python -m pip install --quiet --disable-pip-version-check -r $<
	@touch $@

.PHONY: coverage
coverage:
	$(BIN)/coverage combine --quiet
	$(BIN)/coverage report
	@echo "core, kernel, learners and protocol together, in percent (must reach 95):"
	@$(BIN)/coverage report --include='src/tolfl/core/*,src/tolfl/kernel/*,src/tolfl/learners/*,src/tolfl/protocol/*' --format=total --fail-under=95

check: setup ## formatting, lint, types, import directions, glossary
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/python -m docs.generate.glossary

docs: setup ## build the documentation into site/; a broken link or anchor is an error
	$(MKDOCS) build --strict

docs-serve: setup ## show the documentation on http://127.0.0.1:8000 while you write it
	$(MKDOCS) serve

diagrams: setup ## draw the diagrams of docs/explanation again, from what the protocol does
	$(BIN)/python -m docs.generate.diagrams

bench: setup ## measure seconds per round against the usual research loop
	$(BIN)/python -m benchmarks.simulator

bench-flower: $(FLOWER_STAMP) ## the same against Flower's simulation engine, in an environment of its own
	$(FLOWER_BIN)/python -m benchmarks.flower $(FLOWER)

bench-flower-deployed: setup $(FLOWER_STAMP) ## real processes of both, side by side: seconds per round, and what is left after a kill
	$(BIN)/python -m benchmarks.flower_deployed $(FLOWER)

$(FLOWER_STAMP): pyproject.toml $(FLOWER_PINS)
	test -x $(FLOWER_BIN)/python || $(PYTHON) -m venv .venv-flower
	$(FLOWER_INSTALL) --no-deps $(if $(TORCH_INDEX),--index-url $(TORCH_INDEX)) $(TORCH)
	$(FLOWER_INSTALL) -c $(FLOWER_PINS) hatchling
	@# Flower pins versions of its own, and torch came alone: what both need, without tolfl's own list.
	$(FLOWER_INSTALL) -c $(FLOWER_PINS) 'flwr[simulation]' cryptography filelock fsspec jinja2 matplotlib msgspec networkx pyarrow rich safetensors scikit-learn scipy sympy threadpoolctl tomli-w typer
	$(FLOWER_INSTALL) --no-deps --no-build-isolation -e .
	@touch $@

soak: setup ## thousands of failures on ten real devices, then their history is checked (FAILURES=2000, 40 minutes)
	OMP_NUM_THREADS=1 $(BIN)/python -m tests.net.soak --failures $(FAILURES)

bench-flower-app: setup .venv-flwr-newest/.up-to-date ## one Flower app on Flower and on a fleet, the server killed on both
	$(BIN)/python -m benchmarks.flower_app $(FLOWER)

screenshots: setup ## make the pictures of the page again, with Chromium
	$(BIN)/python -m tests.dashboard.screenshots

explore: setup ## search the protocol for a bad schedule, for long (SCHEDULES=1000000)
	$(BIN)/python -m tests.protocol.explore --schedules $(SCHEDULES)

dist: setup ## build the wheel and the source archive into dist/ (LINKS=<where files of the repository can be read>)
	rm -rf dist
	TOLFL_LINKS=$(LINKS) $(BIN)/hatchling build
	$(BIN)/twine check --strict dist/*

clean: ## remove the virtual environments, caches and reports (runs/ stays)
	rm -rf .arm64 .venv .venv-flower .venv-flwr-* dist site htmlcov .coverage .coverage.* .hypothesis .mypy_cache .pytest_cache .ruff_cache .import_linter_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
