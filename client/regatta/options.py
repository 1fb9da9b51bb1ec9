"""Options that set fields of a specification, for commands and the magic of notebooks."""

from __future__ import annotations

from typing import Any

import click


class Pair(click.ParamType[tuple[str, str]]):
    """Parameter ``name=value``."""

    name = "name=value"

    def convert(self, value: Any, param: click.Parameter | None, context: click.Context | None) -> tuple[str, str]:
        if isinstance(value, tuple):
            return value
        name, equals, rest = value.partition("=")
        if not (name and equals):
            self.fail(f"{value!r} is not in the form name=value.", param, context)
        return name, rest


PAIR = Pair()

# Options that override the file, by key of the specification. A dot separates the keys of nested mappings.
OVERRIDES = (
    click.option("--name", default=None, help="Name of the job."),
    click.option("--framework", default=None, help="Framework: native, paddle, torch or command."),
    click.option("--dataset", default=None, help="Dataset, such as public/digits."),
    click.option("--passes", type=click.IntRange(min=1), default=None, help="Number of passes through the dataset."),
    click.option("--mode", default=None, help="Update mode: sync, async, m_of_n(2), ssp(3) or outer(100)."),
    click.option("--trainers", type=click.IntRange(min=1), default=None, help="Number of trainers."),
    click.option("--min-trainers", type=click.IntRange(min=1), default=None, help="Fewest trainers to continue with."),
    click.option("--max-trainers", type=click.IntRange(min=1), default=None, help="Most trainers, for scaling."),
    click.option(
        "--pservers",
        type=click.IntRange(min=0),
        default=None,
        help="Number of parameter servers; 0 for a plain program.",
    ),
    click.option("--cpu", type=click.FloatRange(min=0, min_open=True), default=None, help="CPU cores of each trainer."),
    click.option("--memory", default=None, help="Memory of each trainer, such as 2Gi."),
    click.option("--gpu", type=click.IntRange(min=0), default=None, help="GPUs of each trainer."),
    click.option(
        "--pserver-cpu",
        type=click.FloatRange(min=0, min_open=True),
        default=None,
        help="CPU cores of each parameter server.",
    ),
    click.option("--pserver-memory", default=None, help="Memory of each parameter server, such as 2Gi."),
    click.option(
        "--priority", type=click.Choice(["low", "normal", "high"]), default=None, help="Priority in the queue."
    ),
    click.option("--timeout", default=None, help="Maximum run time, such as 2h."),
    click.option("--retries", type=click.IntRange(min=0), default=None, help="Number of automatic retries."),
)


def overrides(command: Any) -> Any:
    for decorate in reversed(OVERRIDES):
        command = decorate(command)
    return command
