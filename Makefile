PYTHON ?= python3
BIN := .venv/bin

.PHONY: demo test clean

demo: .venv/ready
	$(BIN)/igos explain --out igos-out

test: .venv/ready-dev
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy
	$(BIN)/python -m pytest

.venv/bin/python:
	$(PYTHON) -m venv .venv

.venv/ready: pyproject.toml | .venv/bin/python
	$(BIN)/python -m pip install --quiet --editable '.[compare]'
	touch $@

.venv/ready-dev: pyproject.toml | .venv/bin/python
	$(BIN)/python -m pip install --quiet --editable '.[dev]'
	touch $@

clean:
	rm -rf .venv igos-out
