# Two commands: `make quickstart` and `make test`. Both work on a fresh clone with Python 3.11+, pip and make.
PYTHON ?= python3
PIP_FLAGS ?=
VENV := .venv
BIN := $(VENV)/bin
# One more than processors, as tests wait for servers and other processes; at most 4, for memory's sake.
WORKERS := $(shell $(PYTHON) -c 'import os; print(min(4, 1 + (os.cpu_count() or 1)))')
# Modules start in the order of their names, as the long ones have few tests and would be last by their size.
PYTEST := -m pytest -n $(WORKERS) --dist loadscope --no-loadscope-reorder
INSTALL := $(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt $(PIP_FLAGS)

# Tests start many processes, which import what the first one compiled.
export PYTHONDONTWRITEBYTECODE :=

.PHONY: quickstart test test-browser coverage lint docs oldest release hashes install clean

quickstart: $(VENV)/installed
	$(BIN)/gnnretrieval quickstart

test: $(VENV)/installed-test
	$(BIN)/python $(PYTEST)

# The explorer's tests in Chromium, from the system (apt install chromium); without it they are skipped.
test-browser: $(VENV)/installed-test
	$(INSTALL) --editable '.[browser]'
	$(BIN)/python -m pytest $$(grep --recursive --files-with-matches chromium tests --include='test_*.py')

# Which lines the tests run, in htmlcov/index.html.
coverage: $(VENV)/installed-dev
	$(BIN)/python $(PYTEST) --cov=gnnretrieval --cov-report=html

lint: $(VENV)/installed-dev
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy

# The site in docs/_build/html; it runs the notebooks that changed. A warning is an error, also about a broken link.
docs: $(VENV)/installed-docs
	$(BIN)/python -m sphinx -q -n -W --keep-going -c docs . docs/_build/html
	@echo "open docs/_build/html/index.html"

# The tests by the lowest versions that pyproject.toml allows, in a place of their own.
oldest:
	$(PYTHON) -m venv $(VENV)-oldest
	$(VENV)-oldest/bin/python -m pip install --quiet --disable-pip-version-check --constraint constraints-oldest.txt $(PIP_FLAGS) --editable '.[cpu,offline,test]'
	$(VENV)-oldest/bin/python $(PYTEST)

# The wheel in dist/, and the tests' notebook run by a wheel like it.
release: $(VENV)/installed-test
	rm -rf dist
	$(BIN)/python -m pip wheel --quiet --disable-pip-version-check --no-deps --wheel-dir dist .
	$(BIN)/python -m pytest tests/test_packaging.py tests/api/test_notebook.py

# constraints-hashed.txt, after constraints.txt has changed. Wants uv (pip install uv). PyTorch without CUDA has a separate index.
hashes:
	(sed -n '/^# /p;/^[^#]/q' constraints-hashed.txt; \
	uv pip compile --quiet --no-deps --no-annotate --no-header --generate-hashes --index-strategy unsafe-best-match \
	  --extra-index-url https://download.pytorch.org/whl/cpu constraints.txt) > constraints-hashed.txt.new || (rm constraints-hashed.txt.new; false)
	mv constraints-hashed.txt.new constraints-hashed.txt

install: $(VENV)/installed

# A stamp is written last, so an interrupted install is started again.
$(VENV)/installed: pyproject.toml constraints.txt
	@echo "installing into $(VENV) (PyTorch is the large part)"
	$(PYTHON) -m venv $(VENV)
	$(INSTALL) --editable '.[cpu,offline,quickstart,serve]'
	@touch $@

$(VENV)/installed-test: $(VENV)/installed
	$(INSTALL) --editable '.[test]'
	@touch $@

$(VENV)/installed-dev: $(VENV)/installed-test
	$(INSTALL) --editable '.[dev]'
	@touch $@

$(VENV)/installed-docs: $(VENV)/installed
	$(INSTALL) --editable '.[docs]'
	@touch $@

clean:
	rm -rf $(VENV) $(VENV)-oldest
