"""How well the model meets published measurements, next to a naive model, and what it cannot be asked.

A value is either scored or has a reason why not. Nothing here is fitted to the model's advantage: the only
constant that is fitted, per family, belongs to the naive model it is compared with.
"""
