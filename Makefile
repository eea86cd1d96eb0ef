# Every command of this repository. `make help` lists them.
#
# All of them set up what they need first, from the hashed locks in requirements/, into .venv, .engine and .tools
# below this folder; nothing has to be installed by hand but Python 3.11, pip and make.

SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DELETE_ON_ERROR:
.DEFAULT_GOAL := help
MAKEFLAGS += --no-print-directory

# The Python to build .venv from, 3.11 or later.
PYTHON ?= python3
# An environment that is active may lack pip.
BASE_PYTHON = $(shell $(PYTHON) -c 'import sys; print(sys._base_executable)')
# ENGINE=no leaves the engine's environment alone: the tests that need a real vLLM then say that they were skipped.
ENGINE ?= yes
# What to hand to pytest: make test PYTEST="-x tests/integration".
PYTEST ?=
# How many processes run the tests. PROCESSES=0 runs them in pytest's own, as a debugger wants it.
PROCESSES ?= 2
# How long `make soak` lets faults come, and what draws them: the same seed draws the same soak.
SECONDS ?= 600
SEED ?= 1
# How often `make recovery` does everything.
ROUNDS ?= 3
# How many examples `make model` tries.
EXAMPLES ?= 500
# Which versions `make lock` may raise: UPGRADE="--upgrade" for all, UPGRADE="--upgrade-package aiohttp" for one.
UPGRADE ?=

BIN := .venv/bin
# What runs may call our tools by name, and keeps what Python compiled whatever the environment says: the tests start
# hundreds of processes, and compiling takes most of a short one's time. Not exported: `make setup` must find the
# Python outside .venv.
RUN := PYTHONDONTWRITEBYTECODE= SLACKWATER_ENGINE_ENVIRONMENT="$(CURDIR)/.engine" SLACKWATER_MODELS_DIR="$(CURDIR)/.models" PATH="$(CURDIR)/$(BIN):$(CURDIR)/.tools/bin:$$PATH"

.PHONY: help setup check lint types unit test model crashes soak recovery demo bench lock wheel engine clean distclean

help: ## List the commands
	@awk -F ':.*## ' '/^[a-z]+:.*## / { printf "  make %-10s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

setup: .venv/.installed ## Make .venv from the locks, with the project itself in place

# `venv --without-pip` needs no Debian package beyond python3, and `pip --python` (22.3 and later) reaches into it, so
# neither python3-venv nor a system-wide install is asked for. uv does the rest because it takes seconds, not minutes.
# Nothing is removed, so that a package being tried out survives; a fresh .venv holds the locks exactly.
.venv/.installed: requirements/uv.txt requirements/dev.txt pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Python 3.11 or later is needed: make PYTHON=python3.11 …")'
	test -x $(BIN)/python || $(BASE_PYTHON) -m venv --without-pip .venv
	test -x $(BIN)/uv || $(BASE_PYTHON) -m pip --python $(BIN)/python install --quiet --require-hashes --requirement requirements/uv.txt
	$(BIN)/uv pip install --quiet --python $(BIN)/python --require-hashes --requirement requirements/dev.txt
	$(BIN)/uv pip install --quiet --python $(BIN)/python --no-deps --no-build-isolation --editable .
	touch $@

check: lint types unit ## All that is quick: lint, contracts, types, unit tests with the gate on domain/

lint: setup ## Format, lint and import contracts
	$(BIN)/ruff format --check --quiet .
	$(BIN)/ruff check --quiet .
	$(BIN)/lint-imports --no-logo

types: setup ## Types, strictly
	$(BIN)/mypy src tests bench examples migrations

unit: setup ## Unit tests; every branch of domain/ must be taken
	$(RUN) coverage run -m pytest tests/unit --quiet
	$(BIN)/coverage report

test: setup engine .tools/.unpacked .tools/.strace ## All tests, on real PostgreSQL, S3 and vLLM
	$(RUN) pytest -n $(PROCESSES) --dist loadgroup --no-loadscope-reorder $(PYTEST)

crashes: setup ## Kill a real process at every crash point, start it again and audit; prints the table
	$(RUN) python -m tests.crashes

soak: setup ## Work for SECONDS=600 while everything dies as SEED=1 draws it; audit every batch
	$(RUN) python -m tests.soak --seconds $(SECONDS) --seed $(SEED)

recovery: setup ## Measure how fast the service gets over each death, ROUNDS=3 times
	$(RUN) python -m tests.soak.recovery --rounds $(ROUNDS)

model: setup ## Long run of the model-based tests, with new examples each time: EXAMPLES=500
	$(RUN) SLACKWATER_MODEL_EXAMPLES=$(EXAMPLES) pytest tests/model $(PYTEST)

demo: setup ## Set everything up and answer a real batch with a real model
	$(RUN) python examples/demo.py

bench: setup engine ## Measure, on loopback only; prints a table, writes bench/results/
	$(RUN) python -m bench

# Idempotent and safe to interrupt: it does nothing where the environment is finished and up to date.
engine: setup ## Make the engine's own environment (vLLM) in .engine, unless ENGINE=no
	$(if $(filter no,$(ENGINE)),@echo "ENGINE=no: .engine is left as it is",$(RUN) slackwater engine install)

# Prometheus and nginx are unpacked, not installed: no root is needed, and Debian's packages would start servers.
.tools/.unpacked:
	@mkdir -p .tools/bin
	@if command -v promtool > /dev/null && command -v prometheus > /dev/null && command -v nginx > /dev/null; then \
	  ln -sf $$(command -v promtool prometheus nginx) .tools/bin/; \
	elif command -v apt-get > /dev/null; then \
	  echo "Unpacking Prometheus and nginx into .tools"; \
	  cd .tools; \
	  $(DOWNLOAD) prometheus nginx || { apt-get -qq update; $(DOWNLOAD) prometheus nginx; }; \
	  for package in *.deb; do dpkg -x $$package root; rm $$package; done; \
	  ln -sf ../root/usr/bin/promtool ../root/usr/bin/prometheus ../root/usr/sbin/nginx bin/; \
	else \
	  echo "No prometheus, no nginx and no apt-get here: the tests that need them will say that they were skipped."; \
	fi
	@touch $@

# With a stamp of its own: whoever unpacked the others before there was this one gets it, too.
.tools/.strace:
	@mkdir -p .tools/bin
	@if command -v strace > /dev/null; then \
	  ln -sf $$(command -v strace) .tools/bin/; \
	elif command -v apt-get > /dev/null; then \
	  echo "Unpacking strace into .tools"; \
	  cd .tools; \
	  $(DOWNLOAD) strace || { apt-get -qq update; $(DOWNLOAD) strace; }; \
	  dpkg -x strace_*.deb root; rm strace_*.deb; \
	  ln -sf ../root/usr/bin/strace bin/; \
	else \
	  echo "No strace and no apt-get here: the test that needs it will say that it was skipped."; \
	fi
	@touch $@

# As the user who asks: apt's own user may not write here.
DOWNLOAD = apt-get -qq -o APT::Sandbox::User=$$(id -un) download

lock: setup ## Compile requirements/*.txt from pyproject.toml; UPGRADE=--upgrade raises versions
	$(LOCK) pyproject.toml --output-file requirements/service.txt
	$(LOCK) pyproject.toml --group dev --output-file requirements/dev.txt
	echo uv | $(LOCK) - --no-annotate --constraint requirements/dev.txt --output-file requirements/uv.txt

# Hashes, and neither addresses nor paths: the same files serve behind any mirror.
LOCK = $(BIN)/uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-header \
  --annotation-style line --no-emit-index-url --no-emit-find-links $(UPGRADE)

wheel: setup ## Build the wheel into dist/
	$(BIN)/uv build --quiet --wheel --no-build-isolation --python $(BIN)/python --out-dir dist

clean: ## Remove caches and what was built
	rm -rf dist .coverage .mypy_cache .ruff_cache .pytest_cache .import_linter_cache .hypothesis
	find src tests bench examples migrations -name __pycache__ -type d -prune -exec rm -rf {} +

distclean: clean ## The same, and the environments: the next command sets up from nothing
	rm -rf .venv .engine .models .tools
