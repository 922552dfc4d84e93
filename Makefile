# Everything a checkout needs, from a bare Debian with python3 and make. `make help` lists the targets.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
PIP := $(BIN)/python -m pip --disable-pip-version-check

# The only tools that are not in constraints.txt: they write it.
LOCK_TOOLS := pip==26.3 pip-tools==7.6.2

.DEFAULT_GOAL := help
.PHONY: help venv packages launchers demo test fast bench lint format lower-bounds lock clean

help: ## this list
	@sed -n 's/^\([a-z-]*\):.*## /\1\t/p' Makefile | expand -t 15

venv: $(STAMP)

# Made anew when what goes in has changed. --no-build-isolation: the build backend is a pinned one too.
$(STAMP): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "fleetstop needs Python 3.11 or later, $(PYTHON) is not. Try: make PYTHON=python3.12" >&2; exit 1; }
	@$(PYTHON) -c 'import ensurepip, venv' 2>/dev/null || bash .ci/packages venv
	$(PYTHON) -m venv --clear $(VENV)
	$(PIP) install --quiet --require-hashes -r constraints.txt
	$(PIP) install --quiet --no-deps --no-build-isolation -e .
	@touch $@

packages:
	@bash .ci/packages beds

# accelerate, deepspeed and Lightning, for the beds of what stands above a trainer.
launchers: packages $(STAMP)
	@bash .ci/launchers

demo: packages $(STAMP) ## stop three trainers on a practice fleet made here, then clean up
	$(BIN)/fleetstop demo

# Whole files go to a worker: a file's bed tests share one practice fleet.
# Tests mostly wait, beds above all: five workers on two cores. In the order of the directories beds
# come first; in the order of their number of tests the longest files would be the last.
test: packages launchers lint ## everything: ruff, mypy, all tests, the beds too
	$(BIN)/python -m pytest -n 5 --dist loadfile --no-loadscope-reorder

fast: $(STAMP) ## the tests that need neither root nor sshd nor LXC
	$(BIN)/python -m pytest -n 3 -m "not bed"

bench: packages $(STAMP) ## how long things take, as ratios in one run
	$(BIN)/python -m tests.bench

lint: $(STAMP) ## ruff and mypy
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

format: $(STAMP) ## put the code into shape
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

lower-bounds: ## the fast tests on exactly the lower bounds that pyproject.toml promises
	rm -rf build/lower-bounds
	mkdir -p build
	$(PYTHON) -m venv build/lower-bounds
	build/lower-bounds/bin/python -c 'import tomllib; print(*(d.replace(">=", "==") for d in \
	  tomllib.load(open("pyproject.toml", "rb"))["project"]["dependencies"]), sep="\n")' \
	  > build/lower-bounds.txt
	build/lower-bounds/bin/pip install --quiet --require-hashes -r constraints.txt
	build/lower-bounds/bin/pip install --quiet -r build/lower-bounds.txt
	build/lower-bounds/bin/pip install --quiet --no-deps --no-build-isolation -e .
	build/lower-bounds/bin/pip check
	build/lower-bounds/bin/python -m pytest -m "not bed"

# Pins stay unless asked: make lock UPGRADE=--upgrade. Local pip settings are left out (set PIP_INDEX_URL
# for a mirror), so that the hashes are those of all files of a release, not of the wheels at hand.
lock: ## write constraints.txt from pyproject.toml
	mkdir -p build
	$(PYTHON) -m venv --clear build/lock
	build/lock/bin/pip install --quiet $(LOCK_TOOLS)
	env -u PIP_FIND_LINKS -u PIP_EXTRA_INDEX_URL -u PIP_CONSTRAINT PIP_CONFIG_FILE=/dev/null \
	  build/lock/bin/pip-compile --quiet $(UPGRADE) --extra test --generate-hashes --no-reuse-hashes \
	  --allow-unsafe --strip-extras --no-header --no-annotate --no-emit-index-url --no-emit-trusted-host \
	  --no-emit-find-links --no-emit-options --output-file constraints.txt pyproject.toml

clean: ## remove what make made
	rm -rf $(VENV) build dist *.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis
	find fleetstop tests -name __pycache__ -type d -prune -exec rm -rf {} +
