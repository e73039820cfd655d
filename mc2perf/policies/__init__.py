"""How a fused operator may be cut into tiles: counts tried, a formula, a linear programme, CANN's tiling."""
