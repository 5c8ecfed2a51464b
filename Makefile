# Two commands: `make demo` and `make test`. Both set up everything they need in .venv. `make quick` is for in between.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin

.PHONY: demo test quick setup lint site papers bench mutants release-check clean

demo: $(VENV)/.stamp-demo
	$(BIN)/hybridp demo --out out

# The tests start many interpreters: what one of them compiles, whatever the environment says, the next one reads.
test quick: export PYTHONDONTWRITEBYTECODE :=

test: $(VENV)/.stamp-dev
	$(BIN)/ruff check conftest.py src lab tests benchmarks docs tools
	$(BIN)/python tools/components.py
	{ $(BIN)/mypy && $(BIN)/python tools/typed_snippets.py && $(BIN)/lint-imports; } & checks=$$!; $(BIN)/pytest -n 2; tests=$$?; \
	wait $$checks || { echo "FAILED: mypy, the snippets or lint-imports, see above"; exit 1; }; exit $$tests

# Less than a minute on two cores: all but what is marked slow.
quick: $(VENV)/.stamp-dev
	$(BIN)/pytest -n 2 -m "not slow"

setup: $(VENV)/.stamp-dev

lint: $(VENV)/.stamp-dev
	$(BIN)/ruff check --fix conftest.py src lab tests benchmarks docs tools
	$(BIN)/mypy
	$(BIN)/python tools/typed_snippets.py
	$(BIN)/lint-imports

# The documentation as a site that needs no network: guides, references written from the code, the papers' report where it was made.
site: $(VENV)/.stamp-dev
	$(BIN)/python docs/build.py --out out/site

# Every figure and table of the papers in its quick form, with one report; goes on where it was stopped.
papers: $(VENV)/.stamp-dev
	$(BIN)/hybridp papers run all --out out/papers

# Both distributions built, installed in clean environments and tried.
release-check: $(VENV)/.stamp-dev
	$(BIN)/python tools/release_check.py

# Weakens privacy, a line at a time, in copies of the tree: does a test notice each? Long, and not part of the tests.
mutants: $(VENV)/.stamp-dev
	$(BIN)/python tools/mutate_privacy.py --jobs 2

# Ratios against peers and limits; minutes, not part of the tests.
bench: $(VENV)/.stamp-bench
	$(BIN)/python -m benchmarks

$(BIN)/python:
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade pip

$(VENV)/.stamp-demo: pyproject.toml | $(BIN)/python
	$(BIN)/python -m pip install --quiet -e ".[plot]"
	touch $@

$(VENV)/.stamp-dev: pyproject.toml lab/pyproject.toml | $(BIN)/python
	$(BIN)/python -m pip install --quiet -e ".[dev]" -e lab
	touch $@ $(VENV)/.stamp-demo

$(VENV)/.stamp-bench: pyproject.toml lab/pyproject.toml | $(VENV)/.stamp-dev
	$(BIN)/python -m pip install --quiet -e ".[dev,bench]" -e lab
	touch $@

clean:
	rm -rf $(VENV) build dist out src/*.egg-info .pytest_cache .mypy_cache .ruff_cache .import_linter_cache .hypothesis
