"""Command-line inspection of checkpoints: ``python -m runtime checkpoint ls|verify DIRECTORY``."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

from runtime.checkpoint.report import report

# Maps each action to whether every byte is read.
_ACTIONS: Mapping[str, bool] = {"ls": False, "verify": True}


def add(subcommands: Any) -> None:
    """Add this subcommand."""
    parser = subcommands.add_parser("checkpoint", help="look at the checkpoints of parameter servers")
    parser.add_argument("action", choices=sorted(_ACTIONS), help="ls: list them; verify: read every byte")
    parser.add_argument("directory", type=Path, help="of a job, or of one of its attempts")
    parser.set_defaults(run=partial(_run, parser))


def _run(parser: argparse.ArgumentParser, arguments: argparse.Namespace) -> int:
    """Return 0 if all is well, 1 if a file is damaged or a resume would find nothing, 2 for wrong arguments."""
    try:
        result = report(arguments.directory, _ACTIONS[arguments.action])
    except OSError as error:
        parser.error(f"{arguments.directory} cannot be read: {error.strerror}. Name a directory of checkpoints.")
    sys.stdout.writelines(f"{line}\n" for line in result.lines)
    return 0 if result.well else 1
