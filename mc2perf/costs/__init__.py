"""What one matmul, one element-wise pass, one collective costs on a machine.

The one place that unpacks machines into equations. It keeps a ledger of what it used: every sourced
number, every equation with its numbers (for ``--explain``), every step outside a fitted range.
"""

from __future__ import annotations

from mc2perf.costs import kernels, links, matmuls, wires
from mc2perf.costs.cost import Copies, Cost, joined
from mc2perf.costs.ledger import Ledger
from mc2perf.costs.setting import Setting
from mc2perf.costs.wires import link_bandwidth

__all__ = ["Copies", "Cost", "Costs", "Ledger", "joined", "link_bandwidth"]


class Costs(Setting):
    """Prices on one machine under the choices of one scenario."""

    matmul = matmuls.matmul
    quantised_matmul = matmuls.quantised_matmul
    vector = kernels.vector
    reorder = kernels.reorder
    attention = kernels.attention
    decode_attention = kernels.decode_attention
    gather = kernels.gather
    collective = links.collective
    send = wires.send
