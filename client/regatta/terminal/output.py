"""Output of commands: tables for people, or JSON, YAML and bare names for programs.

Results go to standard output, everything else to standard error.
"""

from __future__ import annotations

import csv
import io
import json
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import click
import yaml
from rich.console import Console
from rich.table import Table
from rich.text import Text

STYLES = {"SUCCEEDED": "green", "FAILED": "red", "CANCELLED": "yellow", "RUNNING": "cyan"}
UNITS = ("B", "KiB", "MiB", "GiB", "TiB")
# A pipe gets untruncated columns; only a terminal window has a width.
WIDE = 240


# A spreadsheet takes a cell that begins with one of these for a formula.
_FORMULA = ("=", "+", "-", "@", "\t", "\r", "\n", "\uff1d", "\uff0b", "\uff0d", "\uff20")


def csv_line(cells: Iterable[Any]) -> str:
    """Return one line of CSV without its end. Text that a spreadsheet would run gets an apostrophe in front."""
    line = io.StringIO()
    inert = (f"'{cell}" if isinstance(cell, str) and cell.startswith(_FORMULA) else cell for cell in cells)
    csv.writer(line, lineterminator="").writerow(inert)
    return line.getvalue()


@dataclass(frozen=True)
class Listing:
    """Objects of one kind. ``raw`` is the portal's data, ``rows`` are table cells, ``names`` the arguments for other
    commands."""

    heads: Sequence[str]
    rows: Sequence[Sequence[str]]
    raw: Any
    names: Sequence[str]
    empty: str = ""  # message for people if there is nothing


def _table(listing: Listing) -> None:
    if not listing.rows and listing.empty:
        print_message(listing.empty)
        return
    table = Table(*listing.heads, box=None, pad_edge=False)
    for row in listing.rows:
        # Cells are shown literally: user text is not markup.
        table.add_row(*(Text(cell, style=STYLES.get(cell, "")) for cell in row))
    Console(width=None if sys.stdout.isatty() else WIDE, highlight=False).print(table)


def _json(listing: Listing) -> None:
    click.echo(json.dumps(listing.raw, indent=2, ensure_ascii=False))


def _yaml(listing: Listing) -> None:
    click.echo(to_yaml(listing.raw), nl=False)


def _name(listing: Listing) -> None:
    for name in listing.names:
        click.echo(name)


FORMATS: Mapping[str, Callable[[Listing], None]] = {"table": _table, "json": _json, "yaml": _yaml, "name": _name}
option = click.option(
    "-o",
    "--output",
    "form",
    type=click.Choice(list(FORMATS)),
    default="table",
    show_default=True,
    help="Output format.",
)


def show(form: str, listing: Listing) -> None:
    FORMATS[form](listing)


def one(heads: Sequence[str], row: Sequence[str], raw: Any, name: str) -> Listing:
    """Return the listing of a single object."""
    return Listing(heads, [row], raw, [name])


def to_yaml(raw: Any) -> str:
    """Return YAML in which multi-line texts, such as a job's code, stay readable."""
    return yaml.dump(raw, Dumper=_Dumper, allow_unicode=True, sort_keys=False, width=WIDE)


class _Dumper(yaml.SafeDumper):
    pass


def _text(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style="|" if "\n" in text else None)


_Dumper.add_representer(str, _text)


def print_message(text: str) -> None:
    click.echo(text, err=True)


def size(count: float) -> str:
    """Format a number of bytes for people."""
    for unit in UNITS:
        if count < 1024 or unit == UNITS[-1]:
            break
        count /= 1024
    return f"{count:.0f} {unit}" if unit == UNITS[0] else f"{count:.1f} {unit}"


def number(value: float) -> str:
    return f"{value:g}"


def joined(words: Iterable[object]) -> str:
    return ", ".join(map(str, words))
