#!/bin/sh
# Try every law on fresh random examples, over and over: scripts/fuzz.sh [ROUNDS]
set -eu
cd "$(dirname "$0")/.."
rounds="${1:-10}"
while [ "$rounds" -gt 0 ]; do
  HYPOTHESIS_PROFILE=fuzz .venv/bin/python -m pytest -q tests -k "not wheel and not readme"
  rounds=$((rounds - 1))
done
