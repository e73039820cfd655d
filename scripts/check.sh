#!/bin/sh
# The whole gate: makes its own environment in .venv, installs mc2perf with its checkers, runs them all.
set -eu
cd "$(dirname "$0")/.."
if [ ! -x .venv/bin/python ]; then "${PYTHON:-python3}" -m venv .venv; fi
.venv/bin/python -m pip install --quiet --disable-pip-version-check --editable '.[dev]'
.venv/bin/ruff format --check .
.venv/bin/ruff check .
.venv/bin/mypy
.venv/bin/lint-imports
.venv/bin/python -m pytest -n 2 "$@"
