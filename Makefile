# `make help` says what there is. Everything happens in .venv; an existing one is used as it is.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
export CLASSGAN_HOME ?= $(CURDIR)/.classgan
export CLASSGAN_OUTPUTS ?= $(CURDIR)/outputs

.PHONY: help demo up dashboard export-grades check test test-quick rehearsal soak bench docs clean
.DEFAULT_GOAL := help

help:  ## list the targets
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | awk -F ':.*## ' '{printf "  make %-15s %s\n", $$1, $$2}'

demo: $(VENV)/installed-instructor  ## train on digits with three student workers on this machine, about three minutes
	@"$(BIN)/classgan" demo

up: $(VENV)/installed-instructor  ## start the class and keep it up until Ctrl-C; trainings start in the Prefect UI
	@"$(BIN)/classgan" up

dashboard: $(VENV)/installed-instructor  ## serve the class page on http://127.0.0.1:8501 until Ctrl-C; make dashboard PORT=8600
	@"$(BIN)/classgan" dashboard $(if $(PORT),--port $(PORT))

export-grades: $(VENV)/installed-instructor  ## write every student's credit to outputs/grades.csv
	@"$(BIN)/classgan" export-grades --out "$(CLASSGAN_OUTPUTS)/grades.csv"

check: $(VENV)/installed-dev  ## lint, types, import contracts and layout, in seconds
	@"$(BIN)/ruff" check . && "$(BIN)/ruff" format --check .
	@"$(BIN)/ty" check --quiet
	@"$(BIN)/python" -m pytest -q tests/house/test_layout.py tests/house/test_docs.py

test: $(VENV)/installed-dev  ## every test but the rehearsal's: real PostgreSQL, real Prefect, real workers, in two processes
	@"$(BIN)/python" -m pytest -q -n 2 --dist loadscope --no-loadscope-reorder -m "not rehearsal"

rehearsal: $(VENV)/installed-dev  ## a whole day of a class, from the roster to the gradebook, and every fault in every phase
	@"$(BIN)/python" -m pytest -q -n 2 --dist loadscope --no-loadscope-reorder -m rehearsal

test-quick: $(VENV)/installed-dev  ## without the tests that start whole stacks
	@"$(BIN)/python" -m pytest -q -m "not slow and not rehearsal"

soak: $(VENV)/installed-dev  ## a class in which something breaks every few seconds; make soak MINUTES=60 SEED=7
	@PYTHONPATH=tests/helpers "$(BIN)/python" -m faults.soak $(if $(MINUTES),--minutes $(MINUTES)) $(if $(SEED),--seed $(SEED))

bench: $(VENV)/installed-dev  ## speed, bytes and quality, as ratios measured in this run
	@"$(BIN)/python" -m bench

docs: $(VENV)/installed-dev  ## rewrite the generated pages (commands, plan, settings), then build the site in site/
	@"$(BIN)/python" docs/generate.py
	@NO_MKDOCS_2_WARNING=1 "$(BIN)/mkdocs" build --strict

clean:  ## remove the virtual environment, the class's data and caches; outputs stay
	@rm -rf "$(VENV)" "$(CLASSGAN_HOME)" build dist .pytest_cache .ruff_cache .hypothesis

# pip reads the exact tested versions; a newer pip is not needed. Stamps make a second call instant.
$(VENV)/installed-%: pyproject.toml constraints.txt
	@test -x "$(BIN)/python" || { \
	  "$(PYTHON)" -c 'import sys; sys.exit(not (3, 11) <= sys.version_info < (3, 14))' || \
	  { echo "classgan needs Python 3.11 to 3.13, and $(PYTHON) is another. Call: make PYTHON=python3.12 …"; exit 1; }; \
	  echo "making .venv and installing (once; PyTorch is large)"; "$(PYTHON)" -m venv "$(VENV)"; }
	@"$(BIN)/python" -m pip install --quiet --disable-pip-version-check -c constraints.txt -e ".[$*]"
	@touch "$@"
