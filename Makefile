# make run | test | test-all | lint | types | bench | clean
VENV ?= .venv
MARK ?= not slow
JDDL = $(VENV)/bin/jddl
PIP = $(VENV)/bin/python -m pip --disable-pip-version-check
PYTHON ?= $(shell for p in python3 python3.13 python3.12 python3.11; do \
	$$p -c 'import sys; sys.exit(not (3,11) <= sys.version_info[:2] <= (3,13))' 2>/dev/null \
	&& { echo $$p; break; }; done)
BROWSER = $(shell command -v chromium || command -v chromium-browser || command -v google-chrome)
FILES = pyproject.toml constraints.txt

.DELETE_ON_ERROR:
.PHONY: help run test test-all lint types format stubs bench clean
help:
	@echo "make run        train and compare the quickstart (installs first)"
	@echo "make test       run the tests"
	@echo "make test-all   run everything, slow tests too"
	@echo "make lint       the linter; make types: the type checker; make format"
	@echo "make bench      judge the speed limits, write benchmarks/results/ and docs/benchmarks.md"
	@echo "make stubs      write the shelves' .pyi files"

run: $(VENV)/.run
	$(JDDL) compare --config=configs/quickstart.py --workdir=runs/quickstart \
	  --sweep='all_reduce=native;ring;recursive_doubling' \
	  --add='aggregator=error_feedback(topk(ratio=0.01));compressed(int8)'

test: $(VENV)/.test
	@if [ -n "$(BROWSER)" ]; then \
	  $(VENV)/bin/python -m pytest -q -n 2 --dist worksteal --durations=5 -m "$(MARK)"; \
	else echo "no Chromium found: browser tests deselected"; \
	  $(VENV)/bin/python -m pytest -q -n 2 --dist worksteal --durations=5 -m "($(MARK)) and not browser"; fi

test-all:
	@$(MAKE) test MARK="slow or not slow"

lint: $(VENV)/.dev
	$(VENV)/bin/ruff check .
	$(VENV)/bin/ruff format --check .

format: $(VENV)/.dev
	$(VENV)/bin/ruff check --fix .
	$(VENV)/bin/ruff format .

types: $(VENV)/.dev
	$(VENV)/bin/mypy

$(VENV)/bin/python:
	@test -n "$(PYTHON)" || { echo "jddl needs Python 3.11, 3.12 or 3.13; found none" >&2; exit 2; }
	@$(PYTHON) -m venv $(VENV)

$(VENV)/.run: $(FILES) | $(VENV)/bin/python
	@echo "installing (first time only, a few minutes)..."
	@$(PIP) install -q -c constraints.txt -e . && touch $@

$(VENV)/.test: $(FILES) | $(VENV)/bin/python
	@echo "installing with the test tools (first time only, a few minutes)..."
	@$(PIP) install -q -c constraints.txt -e '.[test]' && touch $@ $(VENV)/.run

$(VENV)/.dev: $(FILES) | $(VENV)/bin/python
	@echo "installing with the developers' tools (first time only)..."
	@$(PIP) install -q -c constraints.txt -e '.[dev]' && touch $@ $(VENV)/.run $(VENV)/.test

stubs: $(VENV)/.run
	$(VENV)/bin/python -m jddl.catalog

bench: $(VENV)/.run
	@$(VENV)/bin/python -m benchmarks; status=$$?; \
	$(VENV)/bin/python -m benchmarks.table && exit $$status

clean:
	rm -rf $(VENV) .venv-smoke build dist *.egg-info
