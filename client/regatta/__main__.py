"""Entry point of ``python -m regatta``."""

import sys

from regatta.cli import main


def run() -> None:
    """Run the command and exit. Called by the installed script."""
    sys.exit(main())


if __name__ == "__main__":
    run()
