"""``python -m jobs.kubernetes``: the PaddleJob controller's command."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from jobs.kubernetes import crd


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m jobs.kubernetes", description="The PaddleJob controller.")
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    commands.add_parser("crd", help="write the CustomResourceDefinition, as YAML").set_defaults(run=_write_crd)
    return int(parser.parse_args(arguments).run())


def _write_crd() -> int:
    sys.stdout.write(crd.text())
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
