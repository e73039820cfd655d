"""``mc2perf`` and ``python -m mc2perf``: an interrupt leaves quietly, also while the rest is imported."""

import sys


def main() -> None:
    """Import the tool and run it."""
    try:
        from mc2perf.cli import main as run

        run()
    except KeyboardInterrupt:
        sys.exit(130)


if __name__ == "__main__":
    main()
