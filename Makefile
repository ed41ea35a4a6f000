# rater: `make run` and `make test` do all the set-up on a fresh machine.
#
# PYTHON=/path/to/python3.12   an interpreter of your own choice (3.12 or newer)
# VENV=DIR                     where the environment goes (default .venv)

VENV ?= .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.ready
SUITE ?= mini
SIZE ?= test
REPORT ?= rater-report.html
SHARE ?= 1
# For two CPUs: a quarter of their time tests wait, for processes and for time to pass.
TEST_WORKERS ?= 3
# In the order of tests/conftest.py, where files that take long come first.
SPREAD := -n $(TEST_WORKERS) --dist loadfile --no-loadscope-reorder

LAUNCHER := rater/run/launcher/rater-launcher

.PHONY: bundle run test test-fast schemas golden findings counters bench torture lint style site docs captures clean

run: $(LAUNCHER) $(STAMP)
	@status=0; $(BIN)/rater run $(SUITE) --size $(SIZE) || status=$$?; \
	  [ $$status -eq 2 ] || $(BIN)/rater report last -o $(REPORT) || [ $$status -ne 0 ] || status=$$?; \
	  exit $$status

# Types are checked on one CPU. Meanwhile the bytecode of the tests is made once, which else each worker does, and
# the tests begin.
test: style
	@$(BIN)/mypy > $(VENV)/types.txt 2>&1 & types=$$!; \
	  $(BIN)/python -m pytest --collect-only --quiet > /dev/null 2>&1; \
	  $(BIN)/python -m pytest $(SPREAD) $(PYTEST_ARGS); tested=$$?; \
	  wait $$types; typed=$$?; cat $(VENV)/types.txt; \
	  [ $$typed -eq 0 ] || exit $$typed; exit $$tested

# What starts no copies: half a minute.
test-fast: $(LAUNCHER) $(STAMP)
	@$(BIN)/python -m pytest $(SPREAD) -m "not slow" $(PYTEST_ARGS) \
	  tests/test_architecture.py tests/text tests/plan tests/settings tests/speccpu tests/store \
	  tests/analysis tests/show --ignore tests/show/html \
	  $(addprefix tests/fleet/test_,plan.py merge.py hosts.py) $(addprefix tests/lab/test_,layout.py models.py)

# Schemas of the JSON documents from their types: docs/reference/json.
schemas: $(STAMP)
	@$(BIN)/python -m tests.support.json_schemas

# The screens of tests/golden as they are now, to be read as a difference; NAMES=slow-node: of one.
golden: $(LAUNCHER) $(STAMP)
	@$(BIN)/python -W error -m tests.support.golden $(NAMES)
	@git --no-pager diff --stat tests/golden 2>/dev/null || true

# Codes in the counter tables as the vendors' files have them; VENDORS=DIR: see benchmarks/vendor_codes.py.
counters: $(STAMP)
	@$(BIN)/python -m benchmarks.vendor_codes $(VENDORS)

# What is found in made runs, as tests hold it beside VERSION of the search: raise that first.
findings: $(LAUNCHER) $(STAMP)
	@$(BIN)/python -W error -m tests.support.findings_digest

lint: style
	@$(BIN)/mypy

style: $(LAUNCHER) $(STAMP)
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .

# The pages of docs/ and the reference made from the code, in build/site; a broken link is an error.
# `docs` runs the commands of the pages as well: one that fails or has an unknown option is an error.
site: $(STAMP)
	@$(BIN)/python -c 'import material' 2>/dev/null || \
	  $(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[docs]'
	@NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --quiet --strict
	@echo "build/site/index.html: $$(find build/site -name '*.html' | wc -l) pages"

docs: site $(LAUNCHER)
	@$(BIN)/python -m benchmarks.documented
	@$(BIN)/python -m benchmarks.workflow_page

# Every output and picture of README and docs/ anew, from real runs; SCENES="guest fleet": some.
captures: $(LAUNCHER) $(STAMP)
	@$(BIN)/python -m benchmarks.captures $(SCENES)

bench: $(LAUNCHER) $(STAMP)
	@$(BIN)/python -m benchmarks

# About ten minutes on two CPUs; SHARE=0.1 is a tenth of it, TORTURE="kill9 faults" some campaigns.
torture: $(LAUNCHER) $(STAMP)
	@$(BIN)/python -m benchmarks.torture --share $(SHARE) $(TORTURE)

# A new step of the database, released from now on: db/released.txt.
freeze: $(STAMP)
	@$(BIN)/python -m tests.support.released
	@$(BIN)/python -m tests.support.datasette

# rater with all that it needs in one file, build/rater.pyz, for a machine with Python alone; its size
# and start-up. The launcher is built into the wheel.
bundle: $(LAUNCHER) $(STAMP)
	@$(BIN)/python -c 'import shiv' 2>/dev/null || \
	  $(BIN)/python -m pip install --quiet --disable-pip-version-check shiv
	@$(BIN)/python -m shiv --quiet --compressed --python '/usr/bin/env python3' --console-script rater \
	  --output-file build/rater.pyz .
	@ls -l build/rater.pyz | awk '{printf "build/rater.pyz: %.1f MB\n", $$5 / 1e6}'
	@SHIV_ROOT=build/bundle $(BIN)/python build/rater.pyz --version
	@bash -c 'TIMEFORMAT="start-up: %R s"; time SHIV_ROOT=build/bundle $(BIN)/python build/rater.pyz --version >build/version'

clean:
	rm -rf $(VENV) build dist *.egg-info $(LAUNCHER) .pytest_cache .mypy_cache .ruff_cache

# The program that starts copies, static where that library is: it forks sooner. Exchanged, not
# written over: it may run.
$(LAUNCHER): $(wildcard rater/run/launcher/native/*) | cc
	@digest=$$(cat $(sort $(filter %.c %.h,$^)) | sha256sum | cut -c 1-64); \
	set -- $${CC:-cc} -std=gnu11 -O2 -Wall -Wextra -Wshadow -Werror "-DSOURCE_DIGEST=\"$$digest\"" \
	  -o $@.$$$$ $(filter %.c,$^); \
	  { "$$@" -static 2>/dev/null || "$$@"; } && mv $@.$$$$ $@

# The environment, made anew when what it is made from changes.
$(STAMP): setup.cfg pyproject.toml
	@sh .ci/environment "$(VENV)" "$(PYTHON)"
	@touch $@

.PHONY: cc
cc:
	@command -v $${CC:-cc} >/dev/null 2>&1 || { \
	  echo "rater needs a C compiler to build its benchmarks, and there is no '$${CC:-cc}'." >&2; \
	  echo "Install one (Debian, Ubuntu: apt install gcc libc6-dev; Fedora: dnf install gcc) or set CC." >&2; \
	  exit 1; }
