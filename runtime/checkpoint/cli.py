"""``python -m runtime checkpoint ls|verify DIRECTORY``: look at checkpoints by hand."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

from runtime.checkpoint.report import report

# By action: whether every byte is read.
_ACTIONS: Mapping[str, bool] = {"ls": False, "verify": True}


def add(subcommands: Any) -> None:
    """Add this room to the command."""
    parser = subcommands.add_parser("checkpoint", help="look at the checkpoints of parameter servers")
    parser.add_argument("action", choices=sorted(_ACTIONS), help="ls: list them; verify: read every byte")
    parser.add_argument("directory", type=Path, help="of a job, or of one of its attempts")
    parser.set_defaults(run=partial(_run, parser))


def _run(parser: argparse.ArgumentParser, arguments: argparse.Namespace) -> int:
    """0: all is well; 1: a file is damaged, or a resume would find nothing; 2: it was asked for in a wrong way."""
    try:
        result = report(arguments.directory, _ACTIONS[arguments.action])
    except OSError as error:
        parser.error(f"{arguments.directory} cannot be read: {error.strerror}. Name a directory of checkpoints.")
    sys.stdout.writelines(f"{line}\n" for line in result.lines)
    return 0 if result.well else 1
