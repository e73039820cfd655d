"""The edges of the command line: interrupts, files that are something else, outputs that are kept."""

from __future__ import annotations

import subprocess
import sys

INTERRUPTED_IMPORT = """
import sys
class Interrupt:
    def find_spec(self, name, path, target=None):
        if name == "{module}":
            raise KeyboardInterrupt
sys.meta_path.insert(0, Interrupt())
sys.argv = ["mc2perf", "estimate", "mixtral-8x7b"]
from mc2perf.__main__ import main
main()
"""


def test_an_interrupt_while_modules_are_imported_is_quiet() -> None:
    for module in ("mc2perf.cli", "mc2perf.problems", "mc2perf.api"):
        code = INTERRUPTED_IMPORT.format(module=module)
        found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
        assert (found.returncode, found.stdout, found.stderr) == (130, "", ""), module
