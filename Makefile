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

# ultralytics names opencv-python, which would overwrite the headless one and needs libGL. What its
# detectors import is here without it: 1.4 MB, and no second OpenCV.
$(INSTALLED): pyproject.toml Makefile
	test -x $(BIN)/python || $(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[test]'
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps 'ultralytics>=8.4.190'
	touch $@

$(BENCHMARKED): $(INSTALLED)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[bench]'
	touch $@

clean:
	rm -rf .venv demo .pytest_cache .mypy_cache .ruff_cache .hypothesis
