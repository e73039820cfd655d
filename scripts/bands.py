"""Score every published measurement, write the error bands of answers: ``python scripts/bands.py``."""

from __future__ import annotations

from pathlib import Path

from mc2perf.bands import SHIPPED
from mc2perf.validating import validate
from mc2perf.validating.bands import bands_of, to_json

FILE = Path(__file__).parent.parent / "mc2perf" / SHIPPED


def main() -> None:
    """Write the file."""
    FILE.write_text(to_json(bands_of(validate().scored)), encoding="utf-8")


if __name__ == "__main__":
    main()
