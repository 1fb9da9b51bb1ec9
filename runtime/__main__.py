"""``python -m runtime checkpoint ls|verify DIR``: look at checkpoints by hand."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

from runtime.checkpoint import reader
from runtime.checkpoint.files import LocalFiles
from runtime.checkpoint.format import Damaged, Header
from runtime.checkpoint.progress import Progress

# A line for people, and whether the file is as it should be.
Line = tuple[str, bool]


def main(arguments: Sequence[str] | None = None) -> int:
    """0: all is well; 1: a file is damaged, or there is none."""
    parser = argparse.ArgumentParser(prog="python -m runtime", description="Tools for the training runtime.")
    rooms = parser.add_subparsers(dest="room", required=True)
    checkpoint = rooms.add_parser("checkpoint", help="look at the checkpoints of parameter servers")
    checkpoint.add_argument("action", choices=sorted(_ACTIONS), help="ls: list them; verify: read every byte")
    checkpoint.add_argument("directory", type=Path)
    asked = parser.parse_args(arguments)
    lines = list(_lines(LocalFiles(asked.directory), _ACTIONS[asked.action]))
    for line, _well in lines:
        sys.stdout.write(f"{line}\n")
    if not lines:
        sys.stdout.write(f"There are no checkpoints in {asked.directory}.\n")
    return 0 if lines and all(well for _line, well in lines) else 1


def _lines(files: LocalFiles, look: Callable[[LocalFiles, str], str]) -> Iterator[Line]:
    for name in files.names():
        try:
            yield f"{name}  {look(files, name)}", True
        except (Damaged, OSError) as error:
            yield f"{name}  cannot be used: {error}", False


def _list(files: LocalFiles, name: str) -> str:
    return _describe(reader.head(files, name))


def _verify(files: LocalFiles, name: str) -> str:
    found = reader.load(files, name, wanted=reader.no_blocks)
    return f"{_describe(found.header)}  whole, md5 {found.md5}"


def _describe(header: Header) -> str:
    tables = "".join(f"  table {body['table']['name']}" for body in header.tables)
    data = Progress.from_json(header.progress)
    position = f"data: pass {data.pass_id + 1}, {len(data.done)} tasks done, {len(data.begun)} begun"
    server = f"server {header.shard} of {header.shards}  version {header.version}  {header.blocks} blocks"
    return f"{server}{tables}  {position}"


_ACTIONS: Mapping[str, Callable[[LocalFiles, str], str]] = {"ls": _list, "verify": _verify}


if __name__ == "__main__":
    sys.exit(main())
