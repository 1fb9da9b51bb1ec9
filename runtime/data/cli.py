"""``python -m runtime data formats|ls|cat|convert``: show data files of any format, and convert them."""

from __future__ import annotations

import argparse
import reprlib
import sys
from itertools import islice
from pathlib import Path
from typing import Any

from runtime.data.convert import TARGETS, convert, records
from runtime.data.formats import registry
from runtime.data.formats.base import Format
from runtime.data.span import CHUNK_BYTES

# A picture of many megabytes is shown by its first and last bytes.
_SHORT = reprlib.Repr()
_SHORT.maxstring = _SHORT.maxother = 200
_SHORT.maxdict = _SHORT.maxlist = _SHORT.maxtuple = 50


def add(subparsers: Any) -> None:
    """Add this tool's parser to the command."""
    parser = subparsers.add_parser("data", help="look at data files of any format, and convert them")
    actions = parser.add_subparsers(dest="action", required=True)
    actions.add_parser("formats", help="list the formats").set_defaults(run=_formats)
    listing = actions.add_parser("ls", help="list the chunks of files")
    listing.add_argument("files", nargs="+", metavar="FILE", type=Path)
    listing.add_argument("--format", help="format of the files, if neither content nor name shows it")
    listing.set_defaults(run=_list)
    cat = actions.add_parser("cat", help="write the first records of a file, one a line")
    cat.add_argument("file", metavar="FILE", type=Path)
    cat.add_argument("--count", type=int, default=10, help="how many records (10)")
    cat.add_argument("--format", help="format of the file, if neither content nor name shows it")
    cat.set_defaults(run=_cat)

    converting = actions.add_parser("convert", help="write files of any format as shards of another")
    converting.add_argument("files", nargs="+", metavar="FILE", type=Path)
    converting.add_argument("--format", help="format of the files, if neither content nor name shows it")
    converting.add_argument("--to", choices=sorted(TARGETS), default="recordio", help="the other format (recordio)")
    converting.add_argument("--out", metavar="FOLDER", type=Path, required=True, help="where the shards go")
    converting.add_argument("--shards", type=int, default=1, help="how many (1)")
    converting.add_argument("--prefix", default="data", help="what their names begin with (data)")
    converting.set_defaults(run=_convert)


def _formats(options: argparse.Namespace) -> int:
    del options
    for each in registry.FORMATS.values():
        sys.stdout.write(f"{each.name:<12}{each.title:<32}{' '.join(each.suffixes):<24}a record: {each.record}\n")
    return 0


def _list(options: argparse.Namespace) -> int:
    for path in options.files:
        format_ = _format(path, options.format)
        chunks = records = 0
        for span in format_.index(path, CHUNK_BYTES):
            digest = "" if span.digest is None else f"  crc32 {span.digest:08x}"
            sys.stdout.write(f"{path}  offset {span.offset}  {span.length} bytes  {span.records} records{digest}\n")
            chunks, records = chunks + 1, records + span.records
        sys.stdout.write(f"{path}  {format_.title}: {records} records in {chunks} chunks\n")
    return 0


def _cat(options: argparse.Namespace) -> int:
    format_ = _format(options.file, options.format)
    spans = format_.index(options.file, CHUNK_BYTES)
    records = (record for span in spans for record in format_.read(options.file, span))
    for record in islice(records, options.count):
        sys.stdout.write(f"{_SHORT.repr(record)}\n")
    return 0


def _convert(options: argparse.Namespace) -> int:
    rows = records(options.files, options.format)
    for path in convert(rows, options.out, options.shards, options.prefix, options.to):
        sys.stdout.write(f"{path}\n")
    return 0


def _format(path: Path, name: str | None) -> Format:
    return registry.named(name) if name else registry.detect(path)
