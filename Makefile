# `make demo` shows the main job, `make test` proves it. Everything is made inside .venv; nothing else is touched.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
JOBS ?= 3
# The tests start hundreds of programs: let them keep their compiled bytecode.
unexport PYTHONDONTWRITEBYTECODE

help: ## Show this
	@grep -hE '^[a-z]+:.*##' $(MAKEFILE_LIST) | awk -F ':.*## ' '{printf "  make %-8s %s\n", $$1, $$2}'

$(READY): pyproject.toml constraints.txt
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "mxr needs Python 3.11 or newer: make PYTHON=python3.11 ...")'
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[registry,workers,ort,dev]'
	touch $@

setup: $(READY) ## Make the environment in .venv

demo: $(READY) ## Publish, fetch, be refused, fetch offline, compile: the main job on real files
	@$(BIN)/python examples/demo.py

test: lint types imports unit ## All of it: lint, types, import contracts, tests

lint: $(READY)
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .

types: $(READY)
	$(BIN)/mypy

imports: $(READY)
	$(BIN)/lint-imports --no-cache

unit: $(READY) ## The tests alone (JOBS=3 at once; what starts crowds of processes comes after)
	$(BIN)/pytest -n $(JOBS) --dist worksteal -m "not crowded"
	$(BIN)/pytest -n $(JOBS) --dist worksteal -m crowded tests/end_to_end

bench: $(READY) ## Measure the speed that mxr promises, as ratios in one run
	$(BIN)/python bench/run.py

format: $(READY) ## Format the code
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

pins: ## Renew constraints.txt from the newest versions that fit pyproject.toml
	rm -rf $(VENV)/pins && $(PYTHON) -m venv $(VENV)/pins
	$(VENV)/pins/bin/python -m pip install --quiet -e '.[registry,workers,ort,dev]'
	$(VENV)/pins/bin/python -m pip freeze --exclude-editable > constraints.txt
	rm -rf $(VENV)/pins

.PHONY: help setup demo test lint types imports unit bench format pins
