"""One configuration as live formulas: change a bandwidth in the workbook and the answer moves.

Every transfer is a fixed part and a part that goes with one over the bandwidth; both come from pricing on
machines with other links. Kernels take as long as their cubes or their memory need. What pieces make of
that, under their schedule, is written as formulas over names (:class:`mc2perf.writers.tables.WhatIf`).
"""

from mc2perf.what_if.configuration import LAID_OUT, what_if_of

__all__ = ["LAID_OUT", "what_if_of"]
