# `make demo` shows the main job, `make test` proves it. Everything is made inside .venv; nothing else is touched.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
DEMO := $(VENV)/.demo
COMPILED := $(VENV)/.compiled
# The pip of Python 3.11 takes twice as long to install this.
PIP := pip==26.3
PIP_INSTALL := $(BIN)/python -m pip install --quiet --no-compile --disable-pip-version-check
# Test processes at once. Many tests wait for an event, so there are more of them than cores.
JOBS ?= 5
PYTEST := $(BIN)/pytest -q -n $(JOBS) --dist worksteal
# The tests start many programs: let them keep their compiled bytecode.
unexport PYTHONDONTWRITEBYTECODE

help: ## Show this
	@grep -hE '^[a-z]+:.*##' $(MAKEFILE_LIST) | awk -F ':.*## ' '{printf "  make %-8s %s\n", $$1, $$2}'

$(READY): pyproject.toml constraints.txt
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Development needs Python 3.11 or newer: make PYTHON=python3.11 ...")'
	@echo "Making .venv with all that development and tests need: about 1.1 GB, and some minutes without output."
	$(PYTHON) -m venv $(VENV)
	$(PIP_INSTALL) $(PIP)
	$(PIP_INSTALL) -c constraints.txt -e '.[registry,workers,ort,dev]'
	@# A line that each of the thousands of interpreters of a run would execute, for what Python finds by itself.
	rm -f $(VENV)/lib/python*/site-packages/PasteDeploy-*-nspkg.pth
	touch $@

setup: $(READY) ## Make the environment in .venv

# In a new environment nothing has bytecode yet. One process makes it, before several would all do so. What cannot be
# collected is told by the run.
$(COMPILED): $(READY)
	$(BIN)/pytest -qq --collect-only > /dev/null || true
	touch $@

$(DEMO): pyproject.toml constraints.txt
	@echo "Making .venv with the client, the registry and the worker, for the demo: up to a minute without output."
	$(PYTHON) -m venv $(VENV)
	$(PIP_INSTALL) -c constraints.txt -e '.[registry,workers]'
	touch $@

demo: $(or $(wildcard $(READY)),$(DEMO)) ## The main job on real files; HOLD=1 keeps the registry's pages up
	@HOLD=$(HOLD) $(BIN)/python examples/demo.py

picture: $(READY) ## Take the picture of the first page in README.md (needs Debian's chromium)
	@$(BIN)/python examples/picture.py

test: lint ## Everything that CI runs: lint, types, import contracts, all tests (under 8 minutes on 2 cores)
	@$(MAKE) --no-print-directory -j2 checks unit

checks: types imports

quick: lint types imports ## Lint, types, import contracts, and the tests that start no processes
	$(PYTEST) -m "not process" tests/core tests/cli tests/docs tests/deploy

lint: $(READY)
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .

types: $(READY)
	$(BIN)/mypy

imports: $(READY)
	$(BIN)/lint-imports --no-cache

unit: $(COMPILED) ## All tests (JOBS=5 processes at once)
	$(PYTEST)

soak: $(READY) ## All tests with crowds of full size, more examples, and all benchmarks (up to 40 minutes; not part of CI)
	MXR_TEST_SOAK=1 $(PYTEST)

bench: $(READY) ## Measure mxr beside its peers (eight minutes) and write the table in bench/README.md
	$(BIN)/python bench/compare.py --write

bench-compare: $(READY) ## Measure again, and show each ratio beside the one in bench/README.md
	$(BIN)/python bench/compare.py

bench-details: $(READY) ## Measure single parts of mxr, each with its limit
	$(BIN)/python bench/run.py

dist: $(READY) ## Build the wheel in dist/
	$(BIN)/python -m build --wheel --no-isolation --outdir dist .

format: $(READY) ## Format the code
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

pins: ## Renew constraints.txt from the newest versions that fit pyproject.toml
	rm -rf $(VENV)/pins && $(PYTHON) -m venv $(VENV)/pins
	$(VENV)/pins/bin/python -m pip install --quiet -e '.[registry,workers,ort,dev]'
	$(VENV)/pins/bin/python -m pip freeze --exclude-editable > constraints.txt
	rm -rf $(VENV)/pins

.PHONY: help setup demo test checks quick lint types imports unit soak bench bench-compare bench-details dist format pins picture
