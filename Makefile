# The two commands of the README: `make test` and `make demo`. Both set themselves up.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
# Remade when the declared or the locked dependencies change.
STAMP := $(VENV)/.installed
EXTRAS := ros training sim peers dev

.PHONY: help test demo demo-real lint setup lock coverage sbom clean
.DEFAULT_GOAL := help

help:
	@echo 'make test   set up, then lint, type-check and test'
	@echo 'make demo   set up, then play a simulated drive to the nodes and draw a report'
	@echo 'make demo-real  the same with the real scans of ../shared/data'
	@echo 'make lock   resolve the dependencies of setup.py anew, with hashes'
	@echo 'make coverage  the tests again, with the lines of lpr_ros that none of them runs'
	@echo 'make sbom   list what is installed, with licences, to build/sbom.json'
	@echo 'make clean  remove the environment and the caches'

setup: $(STAMP)

# After the locked packages only torch is left for the second line to bring.
$(STAMP): setup.py requirements-dev.lock
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --disable-pip-version-check --require-hashes --no-deps \
		-r requirements-dev.lock
	$(BIN)/pip install --quiet --disable-pip-version-check --no-build-isolation -e .
	touch $@

# What runs the package, and what tests and training need besides, for every Python and platform.
# Versions already in the files stay where they can: delete one to renew it. torch is left out, and
# with it the CUDA libraries that it pins itself.
TORCH_ONLY := cuda-bindings cuda-toolkit nvidia-cudnn-cu13 nvidia-cusparselt-cu13 nvidia-nccl-cu13 \
	nvidia-nvshmem-cu13 triton
UV := build/lock/bin/uv
COMPILE = $(UV) pip compile --quiet setup.py --universal --python-version 3.10 --generate-hashes \
	--annotation-style line --custom-compile-command 'make lock' \
	--excludes build/lock/torch_only.txt --no-emit-package torch

$(UV):
	$(PYTHON) -m venv build/lock
	build/lock/bin/pip install --quiet uv==0.13.7

lock: $(UV)
	printf '%s\n' $(TORCH_ONLY) > build/lock/torch_only.txt
	$(COMPILE) --output-file requirements.lock
	$(COMPILE) --output-file requirements-dev.lock --constraint requirements.lock $(EXTRAS:%=--extra %)

lint: $(STAMP)
	$(BIN)/ruff check .
	$(BIN)/mypy

# Tests of nodes wait for processes of their own and would wait for each other's.
ROS_TESTS := $(wildcard test/test_ros_*.py) test/test_determinism.py
test: lint
	$(BIN)/python -m pytest --numprocesses 2 --dist loadfile $(ROS_TESTS:%=--ignore=%)
	$(BIN)/python -m pytest $(ROS_TESTS)

# Not part of `make test`: tracing makes it slower by half. What numba compiles is not traced.
coverage: $(STAMP)
	$(BIN)/python -m pytest --numprocesses 2 --dist loadfile $(ROS_TESTS:%=--ignore=%) \
		--cov=lpr_ros --cov-report=
	$(BIN)/python -m pytest $(ROS_TESTS) \
		--cov=lpr_ros --cov-append --cov-report=term-missing:skip-covered

sbom: $(STAMP)
	$(BIN)/python .ci/sbom.py build/sbom.json

demo: $(STAMP)
	$(BIN)/python training/demo.py

demo-real: $(STAMP)
	$(BIN)/python training/demo.py --real

clean:
	rm -rf $(VENV) build install log .pytest_cache .mypy_cache .ruff_cache *.egg-info
