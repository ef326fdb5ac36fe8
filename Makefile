# `make help` says what there is. Everything happens in .venv; an existing one is used as it is. Another Python, as in
# `make test PYTHON=python3.13`, has a folder of its own beside it.
PYTHON ?= python3
VENV   := .venv$(if $(filter-out python3 python,$(notdir $(PYTHON))),-$(notdir $(PYTHON)))
BIN    := $(VENV)/bin
export CLASSGAN_HOME ?= $(CURDIR)/.classgan
export CLASSGAN_OUTPUTS ?= $(CURDIR)/outputs

.PHONY: help demo up dashboard export-grades check test test-quick rehearsal soak bench gpu-check docs clean
.DEFAULT_GOAL := help

# `##@ …` is a heading of `make help`, `## …` behind a target its line there: 57 characters at most, for 80 columns.
help:  ## list the targets
	@awk -F ':.*## ' '/^##@ / {printf "\n%s\n", substr($$0, 5)} /^[a-z-]+:.*## / {printf "  make %-15s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

##@ A class

demo: $(VENV)/installed-instructor  ## train on digits with three workers here, three minutes
	@"$(BIN)/classgan" demo

# Prints the address of the Prefect UI, where trainings are started.
up: $(VENV)/installed-instructor  ## start a class here and keep it up until Ctrl-C
	@"$(BIN)/classgan" up

dashboard: $(VENV)/installed-instructor  ## serve the class page, port 8501; or name it: PORT=8600
	@"$(BIN)/classgan" dashboard $(if $(PORT),--port $(PORT))

export-grades: $(VENV)/installed-instructor  ## write every student's credit to outputs/grades.csv
	@"$(BIN)/classgan" export-grades --out "$(CLASSGAN_OUTPUTS)/grades.csv"

##@ Work on classgan

check: $(VENV)/installed-dev  ## lint, types, import contracts, layout, pages: seconds
	@"$(BIN)/ruff" check . && "$(BIN)/ruff" format --check .
	@for system in linux darwin win32; do "$(BIN)/ty" check --quiet --python-platform $$system || exit; done
	@"$(BIN)/python" -m pytest -q tests/house/test_layout.py tests/house/test_docs.py

# With a real PostgreSQL, a real Prefect and real workers: 9 to 18 minutes on two cores.
test: $(VENV)/installed-dev  ## every test but the rehearsal's, in two processes
	@"$(BIN)/python" -m pytest -q -n 2 --dist loadscope --no-loadscope-reorder -m "not rehearsal"

# From the roster to the gradebook.
rehearsal: $(VENV)/installed-dev  ## a whole day of a class; every fault in every phase
	@"$(BIN)/python" -m pytest -q -n 2 --dist loadscope --no-loadscope-reorder -m rehearsal

test-quick: $(VENV)/installed-dev  ## while you work: all but the slow ones; about 95 seconds
	@"$(BIN)/python" -m pytest -q -n 3 --dist loadscope --no-loadscope-reorder -m "not slow and not rehearsal"

# With CHANGES=1: every knob of the plan changes at random, with real Prefect workers.
soak: $(VENV)/installed-dev  ## a class in which things break; MINUTES=60 SEED=7
	@PYTHONPATH=tests/helpers "$(BIN)/python" -m faults.$(if $(CHANGES),changes,soak) $(if $(MINUTES),--minutes $(MINUTES)) $(if $(SEED),--seed $(SEED))

bench: $(VENV)/installed-dev  ## speed, bytes and quality, as ratios measured in this run
	@"$(BIN)/python" -m bench

# At most eight minutes. Without a GPU, it goes through the same steps on the CPU.
gpu-check: $(VENV)/installed-dev  ## is this machine's GPU right and fast? JSON=FILE
	@"$(BIN)/python" -m bench.gpu_check $(if $(DEVICE),--device "$(DEVICE)") $(if $(JSON),--json "$(JSON)")

# Generated from the code: commands, plan, settings.
docs: $(VENV)/installed-dev  ## rewrite the generated pages, build the site in site/
	@"$(BIN)/python" docs/generate.py
	@NO_MKDOCS_2_WARNING=1 "$(BIN)/mkdocs" build --strict

clean:  ## remove .venv, the class's data, caches; keep outputs
	@rm -rf "$(VENV)" "$(CLASSGAN_HOME)" build dist .pytest_cache .ruff_cache .hypothesis

# pip reads the exact tested versions; a newer pip is not needed. Stamps make a second call instant.
$(VENV)/installed-%: pyproject.toml constraints.txt
	@test -x "$(BIN)/python" || { \
	  "$(PYTHON)" -c 'import sys; sys.exit(not (3, 11) <= sys.version_info < (3, 14))' || \
	  { echo "classgan needs Python 3.11 to 3.13, and $(PYTHON) is another. Call: make PYTHON=python3.12 …"; exit 1; }; \
	  echo "making .venv and installing (once; PyTorch is large)"; "$(PYTHON)" -m venv "$(VENV)"; }
	@"$(BIN)/python" -m pip install --quiet --disable-pip-version-check -c constraints.txt -e ".[$*]"
	@touch "$@"
