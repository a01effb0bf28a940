# One word for everything one does here; `make help` lists them. Needed: make, and Python 3.11 to
# 3.13 with venv. All else comes from the lock files in requirements/, checked against their hashes.

CONFIG ?= configs/edge.yaml
PORT ?= 8000
BENCH_ARGS ?=
PYTEST_ARGS ?=
PYTHON ?= $(shell for p in python3 python3.13 python3.12 python3.11; do \
	$$p -c 'import sys, venv, ensurepip; sys.exit(not (3, 11) <= sys.version_info < (3, 14))' 2>/dev/null \
	&& echo $$p && break; done)

VENV := .venv
BIN := $(VENV)/bin
SOURCES := $(wildcard serve_app deployments tests benchmarks)
# --no-deps: the lock holds everything, and leaves out on purpose what overrides.txt names.
INSTALL := $(BIN)/python -m pip --disable-pip-version-check -qq install --no-deps --no-compile
# Byte code for all of it, once: Ray starts many processes, and is slow where each has to compile.
# A file that is not for this version of Python is no failure.
COMPILE := env -u PYTHONDONTWRITEBYTECODE PYTHONWARNINGS=ignore $(BIN)/python -m compileall -qq -j 0 $(VENV)/lib || true
LOCK_ARGS ?=
UV := env -u PIP_FIND_LINKS -u PIP_INDEX_URL -u PIP_EXTRA_INDEX_URL $(BIN)/uv
LOCK := $(UV) pip compile --quiet --system-certs --universal --python-version 3.11 --generate-hashes \
	--no-emit-index-url --overrides requirements/overrides.txt \
	--custom-compile-command "make lock (install with pip --no-deps --require-hashes)" $(LOCK_ARGS) pyproject.toml --extra embedded --group build

# The stamps are written last, so that a half-made environment is never taken for a whole one. The
# name holds this folder's, since an environment does not survive being moved or copied.
HERE := $(shell pwd | cksum | cut -d' ' -f1)
RUNTIME := $(VENV)/.runtime-$(HERE)
PROJECT := $(VENV)/.project-$(HERE)
DEV := $(VENV)/.dev-$(HERE)
# An environment whose interpreter has been removed or upgraded away is made anew.
BROKEN := $(if $(wildcard $(RUNTIME)),$(shell $(BIN)/python -c '' 2>/dev/null || echo FORCE))

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.PHONY: help env run test check format format-check lint types imports spelling schema \
	schema-drift contract fuzz bench lock clean FORCE

help: ## list these targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  %-14s %s\n", $$1, $$2 }' Makefile

env: $(DEV) ## make .venv with everything for working on the project

run: $(PROJECT) ## serve CONFIG (configs/edge.yaml) on PORT (8000)
	@exec $(BIN)/iop-edge run --config "$(CONFIG)" --port "$(PORT)"

test: $(DEV) ## run the tests (PYTEST_ARGS narrows)
	@$(BIN)/python -m pytest $(PYTEST_ARGS)

check: format-check lint types imports spelling schema-drift ## everything but the tests

format: $(DEV) ## put the code into its form
	@$(BIN)/ruff format $(SOURCES)
	@$(BIN)/ruff check --select I --fix $(SOURCES)

format-check: $(DEV) ## is the code in its form?
	@$(BIN)/ruff format --check $(SOURCES)

lint: $(DEV) ## ruff
	@$(BIN)/ruff check $(SOURCES)

types: $(DEV) ## pyright
	@$(BIN)/pyright --pythonpath $(BIN)/python

imports: $(DEV) ## do imports run one way?
	@$(BIN)/lint-imports --no-cache

spelling: $(DEV) ## codespell over every file of the repository
	@git ls-files -z --cached --others --exclude-standard | xargs -0 $(BIN)/codespell

schema: $(DEV) ## write the JSON schema of edge.yaml anew
	@$(BIN)/iop-edge schema

schema-drift: $(DEV) ## is the JSON schema that of the settings?
	@$(BIN)/iop-edge schema --check

contract: $(DEV) ## print each clause of the contract with its tests
	@$(BIN)/python -m pytest --contract

fuzz: $(DEV) ## look for texts that the reading of tool calls cannot take (minutes)
	@$(BIN)/python -m pytest --hypothesis-profile=fuzz tests/serve_app/streams/test_tool_text_fuzz.py

bench: $(DEV) ## measure the gateway (BENCH_ARGS goes to the benchmark)
	@$(BIN)/python benchmarks/gateway.py $(BENCH_ARGS)

lock: $(DEV) ## make the lock files anew; LOCK_ARGS=--upgrade takes newer versions
	@$(LOCK) -o requirements/runtime.txt >/dev/null
	@$(LOCK) --group test --group check -c requirements/runtime.txt -o requirements/dev.txt >/dev/null

clean: ## remove .venv and all caches
	rm -rf $(VENV) .pytest_cache .ruff_cache .import_linter_cache .hypothesis dist
	find $(SOURCES) -name __pycache__ -type d -prune -exec rm -rf {} +

$(RUNTIME): requirements/runtime.txt $(BROKEN)
	@test -n "$(PYTHON)" || { echo "Python 3.11, 3.12 or 3.13 with venv is needed and was not" \
	"found; name it with PYTHON=/path/to/python3" >&2; exit 1; }
	@echo "Making $(VENV) with $(PYTHON): a minute or two, the first time only"
	@rm -rf $(VENV)
	@$(PYTHON) -m venv $(VENV)
	@$(INSTALL) --require-hashes -r requirements/runtime.txt
	@$(COMPILE)
	@touch $@

$(PROJECT): pyproject.toml $(RUNTIME)
	@$(INSTALL) --no-build-isolation --editable .
	@touch $@

$(DEV): requirements/dev.txt | $(PROJECT)
	@echo "Adding what tests and checks need"
	@$(INSTALL) --require-hashes -r requirements/dev.txt
	@$(COMPILE)
	@touch $@
