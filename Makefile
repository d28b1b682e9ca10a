# Everything that is run here, by name; `make` alone lists it. One virtual environment serves all of it.

SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
.NOTPARALLEL:
.SUFFIXES:

# Extras that `make demo` needs beside NumPy, and those that everything else needs (comma-separated).
DEMO_EXTRAS := ray,torch
DEV_EXTRAS := cli,docs,ray,torch
# Debian packages, each with a command that shows it is there; `package:` asks dpkg.
BUILD_PACKAGES := build-essential:cc
TEST_PACKAGES := openmpi-bin:mpirun chromium:chromium chromium-driver:chromedriver

VENV := .venv
BIN := $(VENV)/bin
OLDEST := .venv-oldest
PY := $(BIN)/python
PYTHON_FOLDERS := $(wildcard python/twinkle tests benches docs examples tools)
RUST_FILES := $(shell find rust -name '*.rs') Cargo.toml Cargo.lock rust/python/Cargo.toml

# What must pass passes or fails alike each time; `make test-long` looks for examples that nobody has seen.
SEED := 1

# What is installed depends on these files only: the same sum, nothing to install.
SUM := $(shell cat pyproject.toml Cargo.toml Makefile | cksum | cut -d' ' -f1)
BASE := $(VENV)/.base-$(SUM)
DEMO := $(VENV)/.demo-$(SUM)
DEV := $(VENV)/.dev-$(SUM)
EXTENSION := $(VENV)/.extension

export VIRTUAL_ENV := $(CURDIR)/$(VENV)
export PATH := $(CURDIR)/$(BIN):$(PATH)
export PYO3_PYTHON := $(CURDIR)/$(PY)
export PIP_DISABLE_PIP_VERSION_CHECK := 1
export PIP_NO_INPUT := 1
unexport PYTHONPATH PYTHONHOME

.PHONY: help demo dev check test test-long test-oldest bench docs fmt stubs wheel sdist clean test-packages

help: ## this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "make %-11s %s\n", $$1, $$2 }' Makefile

demo: $(DEMO) $(EXTENSION) ## build, install and run the reference data flow
	$(PY) examples/reference_flow.py

dev: $(DEV) $(EXTENSION) ## the virtual environment with every extra, the extension built for release

check: dev ## formatting, lints, types, and the stubs against the extension
	cargo fmt --all --check
	cargo clippy --workspace --all-targets --locked -- -D warnings
	$(PY) -m ruff format --check $(PYTHON_FOLDERS)
	$(PY) -m ruff check $(PYTHON_FOLDERS)
	$(PY) -m mypy $(PYTHON_FOLDERS)
	$(PY) tools/stubs.py --check

test: test-packages check ## everything that must pass: check, cargo test, pytest
	PROPTEST_RNG_SEED=$(SEED) cargo test --locked
	cargo test --locked --benches
	$(PY) -m pytest

test-long: test-packages dev ## the laws with many more examples, and the tests marked long
	PROPTEST_CASES=20000 cargo test --locked
	HYPOTHESIS_PROFILE=long $(PY) -m pytest -m "" --timeout 3600

test-oldest: test-packages wheel ## the Python tests with the oldest supported NumPy, torch and Ray
	$(PY) -m venv --clear $(OLDEST)
	$(OLDEST)/bin/python -m pip install --quiet $$(ls -t dist/*.whl | head -n 1) \
		$$(grep -oE '"[a-z-]+>=[0-9.]+"' pyproject.toml | sed -E 's/"(.*)>=(.*)"/\1==\2.*/') 'pytest>=9.2'
	$(OLDEST)/bin/python -m pytest tests --ignore tests/test_package.py --ignore tests/test_stubs.py

bench: dev ## criterion and pytest-benchmark, then the table of ratios in benches/README.md
	cargo bench --locked
	$(PY) -m pytest benches --benchmark-enable --benchmark-disable-gc --benchmark-columns=median,iqr,rounds \
		--benchmark-json=target/python-benches.json
	$(PY) benches/ratios.py --write target/python-benches.json target/criterion

docs: dev ## the documentation, into site/
	$(PY) docs/drawings.py
	$(PY) -m sphinx -W --keep-going -b html docs site

fmt: dev ## format Rust and Python
	cargo fmt --all
	$(PY) -m ruff check --fix $(PYTHON_FOLDERS)
	$(PY) -m ruff format $(PYTHON_FOLDERS)

stubs: dev ## write python/twinkle/_core.pyi from the extension
	$(PY) tools/stubs.py

wheel: $(BASE) ## the abi3 wheel, into dist/
	$(BIN)/maturin build --release --locked --out dist

sdist: $(BASE) ## the source distribution, into dist/
	$(BIN)/maturin sdist --out dist

clean: ## remove what was built and the virtual environment
	rm -rf target dist $(VENV) $(OLDEST) python/twinkle/_core.*.so

test-packages:
	@tools/debian.sh $(TEST_PACKAGES)

$(PY):
	@tools/debian.sh $(BUILD_PACKAGES)
	python="$$(tools/python.sh)" && "$$python" -m venv $(VENV)

$(BASE): | $(PY)
	rm -f $(VENV)/.base-* $(VENV)/.demo-* $(VENV)/.dev-*
	$(PY) -m pip install --upgrade 'pip>=25.1'
	$(PY) -m pip install --group build
	$(BIN)/maturin develop --release --locked
	touch $(EXTENSION) $@

$(DEMO): | $(BASE)
	$(BIN)/maturin develop --release --locked $(addprefix --extras=,$(DEMO_EXTRAS))
	touch $(EXTENSION) $@

# tests/test_package.py puts the wheel and NumPy into an empty environment without a network.
$(DEV): | $(BASE)
	$(BIN)/maturin develop --release --locked --extras=$(DEV_EXTRAS) --group=lint,test
	$(PY) -m pip download --quiet --no-deps --only-binary :all: --dest $(VENV)/wheelhouse \
		"numpy==$$($(PY) -c 'import numpy; print(numpy.__version__)')"
	touch $(EXTENSION) $@

$(EXTENSION): $(RUST_FILES) | $(BASE)
	$(BIN)/maturin develop --release --locked --skip-install
	touch $@
