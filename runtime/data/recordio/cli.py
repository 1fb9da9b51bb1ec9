"""``python -m runtime recordio ls|cat|verify|repair FILE``: inspect RecordIO files, and save undamaged records."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from runtime.data.recordio.files import Source
from runtime.data.recordio.header import COMPRESSORS, HEADER_BYTES, Header, RecordIOError
from runtime.data.recordio.index import Damage, hop, survey
from runtime.data.recordio.reader import Reader

_NAMES = {number: name for name, number in COMPRESSORS.items()}


def add(subparsers: Any) -> None:
    """Add this tool's parser to the command."""
    parser = subparsers.add_parser("recordio", help="look at RecordIO files, check and repair them")
    actions = parser.add_subparsers(dest="action", required=True)
    listing = actions.add_parser("ls", help="list the chunks, without reading them")
    listing.add_argument("files", nargs="+", metavar="FILE")
    listing.set_defaults(run=_on_each(_list))
    cat = actions.add_parser("cat", help="write the records, one a line")
    cat.add_argument("file", metavar="FILE")
    cat.add_argument("--first", type=int, default=0, help="the number of the first record, from 0")
    cat.add_argument("--count", type=int, default=-1, help="how many records; all by default")
    cat.add_argument("--raw", action="store_true", help="write their bytes as they are, with nothing between them")
    cat.set_defaults(run=_cat)
    verify = actions.add_parser("verify", help="read every byte, and say where the file is damaged")
    verify.add_argument("files", nargs="+", metavar="FILE")
    verify.set_defaults(run=_on_each(_verify))
    repair = actions.add_parser("repair", help="copy every whole chunk to a new file")
    repair.add_argument("file", metavar="FILE")
    repair.add_argument("target", metavar="NEW_FILE", type=Path)
    repair.set_defaults(run=_repair)


def _on_each(handle: Callable[[Source], bool]) -> Callable[[argparse.Namespace], int]:
    """Return a command that runs ``handle`` on each file. Its exit code is 0 if all succeed.

    A failure of one file does not prevent the next.
    """

    def run(options: argparse.Namespace) -> int:
        return 0 if all([_tried(handle, name) for name in options.files]) else 1  # noqa: C419  every file is handled

    return run


def _tried(handle: Callable[[Source], bool], name: str) -> bool:
    try:
        with Source(name) as source:
            return handle(source)
    except RecordIOError as error:
        sys.stderr.write(f"{error}\n")
    except OSError as error:
        sys.stderr.write(f"{name} cannot be read: {error.strerror}.\n")
    return False


def _list(source: Source) -> bool:
    chunks = records = 0
    for span in hop(source):
        header = Header.unpack(source.read(span.offset, HEADER_BYTES))
        packing = _NAMES[header.compressor]
        sys.stdout.write(
            f"{source.name}  offset {span.offset}  {span.length} bytes  {span.records} records  {packing}\n"
        )
        chunks, records = chunks + 1, records + span.records
    sys.stdout.write(f"{source.name}  {_counted(records, chunks)}\n")
    return True


def _verify(source: Source) -> bool:
    chunks = records = damaged = 0
    for found in survey(source):
        if isinstance(found, Damage):
            damaged += 1
            sys.stdout.write(f"{source.name}  {_described(found)}\n")
        else:
            chunks, records = chunks + 1, records + found.records
    advice = (
        f"; damaged in {damaged} places, save the rest with: repair {source.name} NEW_FILE" if damaged else "; whole"
    )
    sys.stdout.write(f"{source.name}  {_counted(records, chunks)}{advice}\n")
    return not damaged


def _cat(options: argparse.Namespace) -> int:
    with Reader(options.file) as reader:
        for record in reader.range(options.first, options.count):
            if options.raw:
                sys.stdout.buffer.write(record)
            else:
                sys.stdout.write(f"{_shown(record)}\n")
        sys.stdout.flush()
    return 0


def _repair(options: argparse.Namespace) -> int:
    """Repair a file. Returns 0 if the new file has all of the old one, and 1 if the named parts were lost."""
    target: Path = options.target
    draft = target.with_name(f".{target.name}.{os.getpid()}")
    if target.exists():
        raise RecordIOError(f"{target} exists already. Name a file that does not, so that nothing is overwritten.")
    lost = chunks = records = 0
    try:
        with Source(options.file) as source, draft.open("xb") as file:
            for found in survey(source):
                if isinstance(found, Damage):
                    lost += found.end - found.offset
                    sys.stdout.write(f"{source.name}  {_described(found)}\n")
                else:
                    file.write(_in_our_order(source.read(found.offset, found.length)))
                    chunks, records = chunks + 1, records + found.records
            file.flush()
            os.fsync(file.fileno())
        draft.rename(target)
    finally:
        draft.unlink(missing_ok=True)
    sys.stdout.write(f"{target}  {_counted(records, chunks)}; {lost} bytes of {options.file} were left out\n")
    return 1 if lost else 0


def _in_our_order(chunk: bytes) -> bytes:
    """Return a chunk with the fields of its header in the common order."""
    return Header.unpack(chunk[:HEADER_BYTES]).pack() + chunk[HEADER_BYTES:]


def _described(damage: Damage) -> str:
    return f"offset {damage.offset}  {damage.end - damage.offset} bytes cannot be used: {damage.why}"


def _counted(records: int, chunks: int) -> str:
    return f"{records} records in {chunks} chunks"


def _shown(record: bytes) -> str:
    """Return text unchanged, with other bytes and line breaks escaped; data that is no text as ``b'...'``."""
    try:
        text = record.decode()
    except UnicodeDecodeError:
        return repr(record)
    return text if text.isprintable() else repr(record)
