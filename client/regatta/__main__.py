"""``python -m regatta``."""

import sys

from regatta.cli import main


def run() -> None:
    """What the installed command calls."""
    sys.exit(main())


if __name__ == "__main__":
    run()
