# Needs Python 3.11 or newer and make; no root. Everything else goes into .venv.
# PYTHON=/path/to/python chooses the interpreter that makes the environment.

VENV := .venv
PY := $(VENV)/bin/python
STAMP := $(VENV)/.installed
EXTRAS ?= dev
DEMO_DIR ?= tests/data/demo
# pytest-xdist: one worker per processor.
WORKERS ?= auto
# Passed on to pytest, for example ARGS="-k journal -x".
ARGS ?=
SEED ?= $(shell od -An -N3 -tu4 /dev/urandom | tr -d ' ')

.DEFAULT_GOAL := help
.PHONY: help env demo test soak lint types bench data proto man docs fmt clean

help: ## Show this list
	@awk -F ':.*## ' '/^[a-z]+:.*## /{printf "  make %-8s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

env: $(STAMP) ## Make the environment (the others do it by themselves)

$(STAMP): pyproject.toml
	@sh .ci/venv "$(VENV)" "$(PYTHON)"
	@$(PY) -m pip install --quiet --disable-pip-version-check --editable '.[$(EXTRAS)]'
	@touch $@

demo: $(STAMP) ## Run the toolkit over a small real bookie directory
	@PATH="$(CURDIR)/$(VENV)/bin:$$PATH" sh tests/demo.sh $(DEMO_DIR)

test: $(STAMP) ## Run the whole test suite
	$(PY) -m pytest -n $(WORKERS) $(ARGS)

soak: $(STAMP) ## Run the property tests for long; the log with its seed goes to docs/soak
	@mkdir -p docs/soak
	@log=docs/soak/$$(date -u +%Y-%m-%d)-$$(git describe --always --dirty 2>/dev/null || echo nogit).log; \
	command="$(PY) -m pytest -n $(WORKERS) --timeout=0 --hypothesis-profile=soak --hypothesis-seed=$(SEED) tests/property $(ARGS)"; \
	{ echo "# $$($(PY) --version), $$(uname -sm), started $$(date -u +%H:%M:%SZ)"; echo "$$ $$command"; } >$$log; \
	$$command >>$$log 2>&1; code=$$?; \
	echo "# ended $$(date -u +%H:%M:%SZ), exit code $$code" >>$$log; \
	tail -n 15 $$log; echo "log: $$log"; exit $$code

lint: $(STAMP) ## Check style, formatting and layers
	$(VENV)/bin/ruff check .
	$(VENV)/bin/ruff format --check .
	$(VENV)/bin/lint-imports --no-logo

types: $(STAMP) ## Check types (mypy --strict)
	$(VENV)/bin/mypy

bench: $(STAMP) ## Measure scanning speed and cold start
	$(PY) bench/scan.py
	$(PY) bench/cold.py

data: $(STAMP) ## Regenerate the test data from the corpora
	@for script in tests/data/make*.py tests/data/*/make.py; do \
	  echo "$(PY) $$script"; $(PY) $$script || exit 1; done

proto: $(STAMP) ## Regenerate the protobuf code
	@for file in $$(find bkctl -name '*.proto'); do \
	  echo "protoc $$file"; $(PY) -m grpc_tools.protoc -I . --python_out=. --pyi_out=. $$file || exit 1; done

man: $(STAMP) ## Regenerate the man pages from the commands
	$(PY) man/make.py

docs: $(STAMP) ## Regenerate docs/cli.md, the JSON keys of every command
	$(PY) docs/make_cli.py

fmt: $(STAMP) ## Format the code and mend what ruff can mend
	$(VENV)/bin/ruff check --fix .
	$(VENV)/bin/ruff format .

clean: ## Remove the environment and everything generated at run time
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache build dist *.egg-info
	find bkctl tests bench man -name __pycache__ -prune -exec rm -rf {} +
