"""``python -m runtime``: command-line tools for the files of the training runtime.

  checkpoint ls|verify DIRECTORY                        the checkpoints of parameter servers
  recordio ls|cat|verify|repair FILE ...                RecordIO files
  data formats|ls|cat|convert ...                       data files of all formats

Exit codes: 0 success; 1 something is damaged, missing or refused; 2 wrong usage.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence

from runtime.checkpoint import cli as checkpoint
from runtime.data import cli as data
from runtime.data.recordio import cli as recordio
from runtime.errors import RegattaError

TOOLS = (checkpoint, recordio, data)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the requested tool and return the exit code."""
    parser = argparse.ArgumentParser(prog="python -m runtime", description="Tools for the training runtime.")
    subparsers = parser.add_subparsers(dest="tool", required=True)
    for tool in TOOLS:
        tool.add(subparsers)
    options = parser.parse_args(arguments)
    try:
        return int(options.run(options))
    except BrokenPipeError:  # the reader of the output has closed it
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except OSError as error:
        sys.stderr.write(f"{error.filename or 'The file'} cannot be used: {error.strerror or error}.\n")
    except RegattaError as error:
        sys.stderr.write(f"{error}\n")
    return 1


if __name__ == "__main__":
    sys.exit(main())
