"""Analytical performance model of fused computation and communication (MC2) on Ascend NPUs."""

from __future__ import annotations

from mc2perf.version import VERSION

TYPE_CHECKING = False  # type checkers know better; importing typing delays every command
if TYPE_CHECKING:
    from mc2perf.api import estimate

__version__ = VERSION
__all__ = ["__version__", "estimate"]


def __getattr__(name: str) -> object:
    """Import the Python call when it is used: NumPy is not needed for ``--help``."""
    if name == "estimate":
        from mc2perf.api import estimate

        return estimate
    raise AttributeError(f"module 'mc2perf' has no attribute {name!r}")
