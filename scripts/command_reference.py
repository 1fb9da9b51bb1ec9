"""Write docs/commands.md, the reference of the ``regatta`` command, from the command itself.

Usage: .venv/bin/python scripts/command_reference.py
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import click

from regatta.cli import regatta

PAGE = Path(__file__).resolve().parent.parent / "docs" / "commands.md"
HEAD = """# Commands

Reference of the `regatta` command, generated from its help texts by `scripts/command_reference.py`. For an
introduction, see [The command line](guide.md#the-command-line) in the guide.
"""


def reference() -> str:
    """Return the whole page."""
    return "\n".join([HEAD, *_sections(regatta, click.Context(regatta, info_name="regatta"))])


def _sections(command: click.Command, context: click.Context) -> Iterator[str]:
    yield _section(command, context)
    if isinstance(command, click.Group):
        for name in command.list_commands(context):
            below = command.get_command(context, name)
            if below is not None and not below.hidden:
                yield from _sections(below, click.Context(below, info_name=name, parent=context))


def _section(command: click.Command, context: click.Context) -> str:
    usage = " ".join([context.command_path, *command.collect_usage_pieces(context)])
    lines = [f"## {context.command_path}", "", _paragraphs(command.help or ""), "", "```", usage, "```", ""]
    asked = [each for each in command.get_params(context) if each.name != "help"]
    options = [record for each in asked if (record := each.get_help_record(context))]
    if options:
        lines += ["| Option | Description |", "|---|---|"]
        lines += [f"| `{_cell(name)}` | {_cell(what)} |" for name, what in options] + [""]
    return "\n".join(lines)


def _paragraphs(text: str) -> str:
    """Format help text like click: paragraphs are filled, except those with a mark."""
    kept = text.replace("\b\n", "").strip()
    return "\n".join(line.strip() for line in kept.splitlines())


def _cell(text: str) -> str:
    return " ".join(text.replace("|", "\\|").split())


if __name__ == "__main__":
    PAGE.write_text(reference(), encoding="utf-8")
