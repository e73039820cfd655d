"""How others cut a fused operator into tiles: policies to compare with, as pure functions."""
