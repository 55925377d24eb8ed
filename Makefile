# `make` lists the targets. Every target sets up the environment it needs.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
# Rebuilt when the declared or the locked dependencies change.
STAMP := $(VENV)/.installed
EXTRAS := ros training sim peers fleet view docs dev
KILTED_EXTRAS := ros-kilted training sim fleet view dev
KILTED := .venv-kilted
SITE := build/site

.PHONY: help setup test test-kilted lint docs demo demo-real mutants coverage sbom audit lock clean
.DEFAULT_GOAL := help

help:
	@echo 'make test       set up, lint, build the documentation, run all tests'
	@echo 'make test-kilted  run the tests of the nodes on ROS 2 Kilted, in an environment of its own'
	@echo 'make demo       play a simulated drive through the ROS nodes and write a report to demo/'
	@echo 'make demo-real  the same with the real scans in ../shared/data'
	@echo 'make docs       build the documentation site to $(SITE); dead links fail'
	@echo 'make lint       ruff check, ruff format --check, mypy'
	@echo 'make mutants    change operators in the code at random and list changes no test notices'
	@echo 'make coverage   run all tests and list the lines of lpr_ros that none of them runs'
	@echo 'make sbom       write the installed packages and their licenses to build/sbom.json'
	@echo 'make audit      check the locked packages for known vulnerabilities (needs the internet)'
	@echo 'make lock       resolve the dependencies in setup.py to requirements*.lock, with hashes'
	@echo 'make clean      remove the environment, caches and builds'

setup: $(STAMP)

# The lock covers everything except torch, which the second pip command installs. Without --use-pep517
# an old pip puts the console scripts elsewhere than in $(BIN).
$(STAMP): setup.py requirements-dev.lock
	$(call install,$(VENV),requirements-dev.lock)

$(KILTED)/.installed: setup.py requirements-kilted.lock
	$(call install,$(KILTED),requirements-kilted.lock)

define install
	test -x $(1)/bin/python || $(PYTHON) -m venv $(1)
	$(1)/bin/pip install --quiet --disable-pip-version-check --require-hashes --no-deps -r $(2)
	$(1)/bin/pip install --quiet --disable-pip-version-check --no-build-isolation --use-pep517 -e .
	touch $(1)/.installed
endef

# requirements.lock: what the package needs at run time; requirements-dev.lock: all extras as well;
# requirements-kilted.lock: the nodes and their tests on ROS 2 Kilted instead of Jazzy.
# All cover every supported Python and platform. Existing pins are kept where possible; delete a
# file to upgrade it. torch and the CUDA libraries it pins are excluded: each index serves another
# build of torch, so no hash fits all.
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
	$(COMPILE) --output-file requirements-kilted.lock --constraint requirements.lock $(KILTED_EXTRAS:%=--extra %)

lint: $(STAMP)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

docs: $(STAMP)
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet --site-dir $(SITE)

# Tests of nodes run one after another: nodes of different tests would compete for the cores.
ROS_TESTS := $(addprefix test/,$(shell cat test/ros_tests.txt))
test: lint docs
	$(BIN)/python -m pytest --numprocesses 2 --dist loadfile $(ROS_TESTS:%=--ignore=%)
	$(BIN)/python -m pytest $(ROS_TESTS)

test-kilted: $(KILTED)/.installed
	$(KILTED)/bin/python -m pytest $(ROS_TESTS)

# Not part of `make test`: tracing takes half as long again. Code compiled by numba is not traced.
coverage: $(STAMP)
	$(BIN)/python -m pytest --numprocesses 2 --dist loadfile $(ROS_TESTS:%=--ignore=%) \
		--cov=lpr_ros --cov-report=
	$(BIN)/python -m pytest $(ROS_TESTS) \
		--cov=lpr_ros --cov-append --cov-report=term-missing:skip-covered

mutants: $(STAMP)
	$(BIN)/python test/mutants.py

sbom: $(STAMP)
	$(BIN)/python .ci/sbom.py build/sbom.json

# torch is not in the lock; its exact version is in setup.py.
audit: $(STAMP)
	$(BIN)/pip-audit --require-hashes --disable-pip --requirement requirements.lock
	$(BIN)/pip-audit --require-hashes --disable-pip --requirement requirements-dev.lock

demo: $(STAMP)
	$(BIN)/python training/demo.py

demo-real: $(STAMP)
	$(BIN)/python training/demo.py --real

clean:
	rm -rf $(VENV) $(KILTED) build install log .pytest_cache .mypy_cache .ruff_cache *.egg-info
