"""Analytical performance model of fused computation and communication (MC2) on Ascend NPUs."""
