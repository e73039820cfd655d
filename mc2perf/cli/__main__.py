"""Run the tool as a module: ``python -m mc2perf.cli``."""

from mc2perf.cli import main

main()
