"""Commands that look into the running replicas of a job: stacks, flame graph."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import click

from regatta.session import Session, take
from regatta.terminal import flame_svg
from regatta.terminal.output import print_message

SECONDS = 10.0


@click.command()
@click.argument("job_id")
@take
def stacks(session: Session, job_id: str) -> None:
    """Print the Python stacks of all threads of all running replicas, grouped by equal stacks."""
    with session.portal() as portal:
        found = portal.jobs.stacks(job_id)
    click.echo("\n".join(_lines(found)))


def _lines(found: Mapping[str, Any]) -> Iterator[str]:
    for replica in found["replicas"]:
        if replica["state"] != "running" or replica["note"]:
            yield " ".join(filter(None, (f"{replica['replica']}: {replica['state']}.", replica["note"])))
    for group in found["groups"]:
        yield ""
        yield ", ".join(f"{count} x {role}" for role, count in group["roles"].items())
        yield "  " + ", ".join(f"{one['replica']} {one['thread']}".strip() for one in group["members"])
        for frame in group["frames"]:
            yield f"    {frame['function']}  {frame['file']}:{frame['line'] or '?'}"


@click.command()
@click.argument("job_id")
@click.option("-s", "--seconds", type=click.FloatRange(1, 60), default=SECONDS, help="Length of the recording.")
@click.option(
    "-r", "--replica", "replicas", multiple=True, help="Replica, such as trainer-0. Repeatable. Default: all."
)
@click.option(
    "-o",
    "--output",
    "path",
    type=click.Path(path_type=Path, dir_okay=False),
    default=None,
    help="File for the result: a drawing if its name ends with .svg, else folded stacks. Default: standard output.",
)
@take
def flamegraph(session: Session, job_id: str, seconds: float, replicas: tuple[str, ...], path: Path | None) -> None:
    """Record where running replicas spend their time, as a flame graph."""
    with session.portal() as portal:
        found = portal.jobs.flamegraph(job_id, seconds, list(replicas) or None)
    for one in found["replicas"]:
        if one["note"]:
            print_message(f"{one['replica']}: {one['note']}")
    merged = _merged([one for one in found["replicas"] if one["stacks"]])
    if path is not None and path.suffix == ".svg":
        path.write_text(flame_svg.draw(merged, f"Job {job_id}"), encoding="utf-8")
        return
    folded = "".join(f"{stack} {count}\n" for stack, count in merged.items())
    if path is None:
        click.echo(folded, nl=False)
    else:
        path.write_text(folded, encoding="utf-8")


def _merged(recordings: list[Mapping[str, Any]]) -> dict[str, int]:
    """Return the stacks of all replicas; of several ones each stack begins with the replica's name."""
    return {
        f"{one['replica']};{stack}" if len(recordings) > 1 else stack: count
        for one in recordings
        for stack, count in one["stacks"].items()
    }


COMMANDS = (stacks, flamegraph)
