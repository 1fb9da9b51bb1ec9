"""Commands for programs that are held at their exception: hold, release, variables."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import click

from regatta.session import Session, take
from regatta.terminal.output import print_message

MINUTES, MOST_MINUTES = 15.0, 240.0

_replicas = click.option(
    "-r", "--replica", "replicas", multiple=True, help="Replica, such as trainer-0. Repeatable. Default: all."
)


@click.command()
@click.argument("job_id")
@click.option(
    "-m",
    "--minutes",
    type=click.FloatRange(0, MOST_MINUTES),
    default=MINUTES,
    show_default=True,
    help="Length of a hold. 0: hold none.",
)
@_replicas
@take
def hold(session: Session, job_id: str, minutes: float, replicas: tuple[str, ...]) -> None:
    """Hold programs that end with an exception from now on, with their frames.

    A program that is held already is held for that long from now on.
    """
    with session.portal() as portal:
        asked = portal.jobs.hold(job_id, round(minutes * 60), list(replicas) or None)
    _print_notes(asked)
    names = ", ".join(one["replica"] for one in asked if not one["note"])
    if names and minutes:
        print_message(f"A program that ends with an exception is held for {minutes:g} min: {names}.")
    elif names:
        print_message(f"No program is held: {names}.")


@click.command()
@click.argument("job_id")
@_replicas
@take
def release(session: Session, job_id: str, replicas: tuple[str, ...]) -> None:
    """Let programs end that are held at their exception."""
    with session.portal() as portal:
        asked = portal.jobs.release(job_id, list(replicas) or None)
    _print_notes(asked)
    if names := ", ".join(one["replica"] for one in asked if not one["note"]):
        print_message(f"Released: {names}.")


@click.command()
@click.argument("job_id")
@click.argument("replica", default="")
@take
def variables(session: Session, job_id: str, replica: str) -> None:
    """Print the frames of a held program with their variables. REPLICA is the first that is held by default."""
    with session.portal() as portal:
        found = portal.jobs.variables(job_id, replica or _first_held(portal.jobs.get(job_id).raw["replicas"]))
    click.echo("\n".join(_lines(found)))


def _first_held(replicas: Sequence[Mapping[str, Any]]) -> str:
    held = [str(one["name"]) for one in replicas if one.get("held")]
    if not held:
        raise click.ClickException("No program of this job is held.")
    return held[0]


def _print_notes(asked: Sequence[Mapping[str, Any]]) -> None:
    for one in asked:
        if one["note"]:
            print_message(f"{one['replica']}: {one['note']}")


def _lines(found: Mapping[str, Any]) -> Iterator[str]:
    yield f"{found['exception']}: {found['message']}".removesuffix(": ")
    for frame in found["frames"]:
        yield ""
        yield f"{frame['function']}  {frame['file']}:{frame['line'] or '?'}"
        for one in frame["variables"]:
            kind = f"{one['type']} {one['shape']}" if one["shape"] else one["type"]
            size = "" if one["size"] is None else f", {one['size']:,} bytes"
            yield f"    {one['name']}: {kind}{size} = {one['text']}"
    if not found["complete"]:
        yield ""
        yield "Some variables are left out: there are too many, or they took too long to describe."


COMMANDS = (hold, release, variables)
