# The two commands are `make demo` and `make test`; both prepare their own environment.
#
#   make demo [QUICK=1] [OUT=DIR]   train, freeze, train against, judge, report
#   make test                       the tests that take less than half a minute each
#   make test-all                   all tests
#   make lint                       ruff and mypy
#   make .venv                      only prepare the environment
#
# VENV=DIR names another environment, PYTHON=EXE the interpreter it is made of (3.11 or newer).

VENV ?= .venv
PYTHON ?=
OUT ?= runs/demo
QUICK ?=

quick := $(if $(filter-out 0 no false,$(QUICK)),--quick)
ready := $(VENV)/.ready
SHELL := /bin/bash

.PHONY: .venv demo test test-all lint
.DEFAULT_GOAL := demo

.venv: $(ready)

# The marker comes last, so a preparation that was cut short is done again. Of the interpreters on
# the path the first that is new enough and can make environments is taken: a name that is there may
# still be a stand-in that does not run. `.setup_seconds` is what the demo reports as set-up.
$(ready): pyproject.toml
	@set -euo pipefail; start=$$(date +%s.%N); \
	rm -f $(ready); \
	usable() { "$$1" -c 'import sys, venv, ensurepip; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; }; \
	if ! usable "$(VENV)/bin/python"; then \
	  found=""; \
	  for python in $(or $(PYTHON),python3.11 python3.12 python3 $$HOME/.pyenv/versions/3.1[12]*/bin/python); do \
	    if usable "$$python"; then found="$$python"; break; fi; \
	  done; \
	  if [ -z "$$found" ]; then \
	    echo "no Python of 3.11 or newer with venv was found: install one, or give PYTHON=/path/to/python" >&2; \
	    exit 1; \
	  fi; \
	  echo "making $(VENV) with $$($$found --version)"; \
	  "$$found" -m venv --clear "$(VENV)"; \
	fi; \
	"$(VENV)/bin/python" -m pip install --quiet --disable-pip-version-check -e '.[test]'; \
	echo "$$(date +%s.%N) $$start" | awk '{printf "%.1f\n", $$1 - $$2}' > "$(VENV)/.setup_seconds"; \
	touch $(ready); \
	echo "$(VENV) is ready after $$(cat $(VENV)/.setup_seconds) s"

demo: $(ready)
	$(VENV)/bin/mimesis demo $(quick) --out "$(OUT)"

test: $(ready)
	$(VENV)/bin/python -m pytest

test-all: $(ready)
	$(VENV)/bin/python -m pytest -m "slow or not slow"

lint: $(ready)
	$(VENV)/bin/ruff check .
	$(VENV)/bin/ruff format --check .
	$(VENV)/bin/mypy mimesis_jax
