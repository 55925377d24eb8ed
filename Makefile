# The two commands of the README: `make test` and `make demo`. Both set themselves up.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
# Remade when the declared or the pinned dependencies change.
STAMP := $(VENV)/.installed

.PHONY: test demo demo-real lint setup coverage sbom clean
.DEFAULT_GOAL := help

help:
	@echo 'make test   set up, then lint, type-check and test'
	@echo 'make demo   set up, then play a simulated drive to the nodes and draw a report'
	@echo 'make demo-real  the same with the real scans of ../shared/data'
	@echo 'make coverage  the tests again, with the lines of lpr_ros that none of them runs'
	@echo 'make sbom   list what is installed, with licences, to build/sbom.json'
	@echo 'make clean  remove the environment and the caches'

setup: $(STAMP)

$(STAMP): setup.py constraints.txt
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --disable-pip-version-check -c constraints.txt setuptools wheel
	PIP_CONSTRAINT=$(CURDIR)/constraints.txt $(BIN)/pip install --quiet --disable-pip-version-check \
		-c constraints.txt --no-build-isolation -e '.[ros,training,sim,dev]'
	touch $@

lint: $(STAMP)
	$(BIN)/ruff check .
	$(BIN)/mypy

test: lint
	$(BIN)/python -m pytest

# Not part of `make test`: tracing makes it slower by half. What numba compiles is not traced.
coverage: $(STAMP)
	$(BIN)/python -m pytest --cov=lpr_ros --cov-report=term-missing:skip-covered

sbom: $(STAMP)
	$(BIN)/python .ci/sbom.py build/sbom.json

demo: $(STAMP)
	$(BIN)/python training/demo.py

demo-real: $(STAMP)
	$(BIN)/python training/demo.py --real

clean:
	rm -rf $(VENV) build install log .pytest_cache .mypy_cache .ruff_cache *.egg-info
