# The two commands of the README are `make demo` and `make test`; each sets itself up.
PYTHON ?= python3
BIN := .venv/bin
INSTALLED := .venv/.installed
BENCHMARKED := .venv/.bench

.PHONY: demo test check bench clean

demo: $(INSTALLED)
	$(BIN)/python -m incognita.cli demo --out demo

test: $(INSTALLED)
	$(BIN)/python -m pytest

check: $(INSTALLED)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/python -m pytest

bench: $(BENCHMARKED)
	$(BIN)/python -m bench

$(INSTALLED): pyproject.toml
	test -x $(BIN)/python || $(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[test]'
	touch $@

$(BENCHMARKED): $(INSTALLED)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[bench]'
	touch $@

clean:
	rm -rf .venv demo .pytest_cache .mypy_cache .ruff_cache .hypothesis
