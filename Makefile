# The two commands of the README are `make demo` and `make test`; each sets itself up.
PYTHON ?= python3
BIN := .venv/bin
INSTALLED := .venv/.installed
BENCHMARKED := .venv/.bench
# One process per core, one thread per process; tests of one file share a process and its fixtures,
# and tests/conftest.py puts the slowest files first.
PYTEST := $(BIN)/python -m pytest --numprocesses auto --dist loadfile --no-loadscope-reorder

.PHONY: demo test browser quick check bench docs changelog pictures clean

demo: $(INSTALLED)
	$(BIN)/python -m incognita.cli demo --out demo

test: $(INSTALLED) browser
	$(PYTEST)

# Tests open reports in a browser; where it cannot be installed they are skipped and say so.
SUDO := $(shell test "$$(id -u)" = 0 || echo sudo -n)
browser:
	@test -x /usr/bin/chromium || ! command -v apt-get >/dev/null \
		|| { $(SUDO) apt-get update -qq && $(SUDO) apt-get install -qq --yes chromium; } \
		|| echo "chromium cannot be installed: tests of reports in a browser are skipped"

# What most changes break, in less than 90 seconds.
quick: $(INSTALLED)
	$(PYTEST) -m "not slow" tests/test_architecture.py tests/test_english.py \
		tests/containers tests/decisions tests/formats tests/results tests/metrics/test_ranking.py \
		tests/evaluation/test_evaluate.py src/incognita

check: $(INSTALLED) browser
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(PYTEST)

# Pages, docstrings and examples as a site in site/; nothing is downloaded while it is built.
docs: $(INSTALLED)
	NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --strict --quiet
	@echo "The documentation is in $(CURDIR)/site/index.html; to search it: $(BIN)/python -m http.server --bind 127.0.0.1 -d site"

changelog: $(INSTALLED)
	$(BIN)/python docs/make_changelog.py

# The pictures of the pages, of the reports of the demo.
pictures: demo browser
	$(BIN)/python docs/make_pictures.py demo

bench: $(BENCHMARKED)
	$(BIN)/python -m bench

# ultralytics and imagecorruptions-imaug require opencv-python, which would overwrite the headless
# build and needs libGL; without their dependencies they are 1.4 and 2 MB, and what they import is
# installed already.
$(INSTALLED): pyproject.toml Makefile
	test -x $(BIN)/python || $(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[test]'
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps 'ultralytics>=8.4.190' \
		'imagecorruptions-imaug>=1.1.5'
	touch $@

$(BENCHMARKED): $(INSTALLED)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[bench]'
	touch $@

clean:
	rm -rf .venv demo site .pytest_cache .mypy_cache .ruff_cache .hypothesis
