"""Commands for the log, the metrics and the events of a job."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import click

from regatta.api import Client
from regatta.job import Job
from regatta.models import Line, Point
from regatta.series import Series
from regatta.session import Session, take
from regatta.terminal import output
from regatta.terminal.output import Listing, print_message

# Lines printed of a log that is not followed, by default.
TAIL = 1000
_SPAN = re.compile(r"(\d+(?:\.\d+)?)([smhd])")
_SECONDS: Mapping[str, float] = {"s": 1, "m": 60, "h": 3600, "d": 86400}


class Moment(click.ParamType[datetime]):
    """Duration before now (10m, 2h), or an ISO 8601 time."""

    name = "time"

    def convert(self, value: Any, param: click.Parameter | None, context: click.Context | None) -> datetime:
        if isinstance(value, datetime):
            return value
        if span := _SPAN.fullmatch(value):
            return datetime.now(UTC) - timedelta(seconds=float(span[1]) * _SECONDS[span[2]])
        try:
            moment = datetime.fromisoformat(value)
        except ValueError:
            self.fail(f"{value!r} is not a duration (10m) or a time (2026-01-31T12:00:00Z).")
        return moment if moment.tzinfo else moment.astimezone()


@click.command()
@click.argument("job_id")
@click.option(
    "-f", "--follow", "follows", is_flag=True, help="Follow until the job ends. The exit code reports its outcome."
)
@click.option("--since", type=Moment(), default=None, help="Start time: an age, such as 10m, or 2026-01-31T12:00:00Z.")
@click.option(
    "--tail", type=click.IntRange(min=0), default=None, help=f"Number of lines from the end. Default: {TAIL}."
)
@click.option("--after", type=click.IntRange(min=0), default=None, help="Print all lines after this line number.")
@click.option("--replica", default=None, help="Only lines of this replica, such as trainer-0.")
@click.option("--timestamps", is_flag=True, help="Prefix each line with its time.")
@click.option(
    "-o",
    "--output",
    "form",
    type=click.Choice(["text", "json"]),
    default="text",
    help="Output format; json prints one object per line.",
)
@take
def logs(
    session: Session,
    job_id: str,
    follows: bool,
    since: datetime | None,
    tail: int | None,
    after: int | None,
    replica: str | None,
    timestamps: bool,
    form: str,
) -> None:
    """Print a job's log. Ctrl-C leaves the job running."""
    show = _as_json if form == "json" else _with_time if timestamps else _plain
    with session.portal() as portal:
        begin = _begin(portal, job_id, follows=follows, since=since, tail=tail, after=after, replica=replica)
        if follows:
            for line in portal.jobs.logs.follow(job_id, begin, replica=replica, since=since):
                show(line)
            exit_with(portal.jobs.get(job_id))
        for line in portal.jobs.logs.read(job_id, begin, replica=replica, since=since):
            show(line)


def _begin(
    portal: Client,
    job_id: str,
    *,
    follows: bool,
    since: datetime | None,
    tail: int | None,
    after: int | None,
    replica: str | None,
) -> int:
    """Return the cursor to read from. A log that is not followed begins near its end; a message says so."""
    if after is not None or (tail is None and (follows or since is not None)):
        return after or 0
    wanted = TAIL if tail is None else tail
    if wanted == 0:
        return portal.jobs.logs.last_line(job_id)
    lines = portal.jobs.logs.tail(job_id, wanted, replica=replica)
    begin = lines[0].seq - 1 if lines else 0
    if tail is None and len(lines) == wanted and begin:
        print_message(f"Showing the last {wanted} lines. For all lines: regatta logs --after 0 {job_id}")
    return begin


def follow(portal: Client, job_id: str) -> None:
    """Print the log to its end, then exit with the outcome of the job."""
    for line in portal.jobs.logs.follow(job_id):
        _plain(line)
    exit_with(portal.jobs.get(job_id))


def exit_with(job: Job) -> None:
    print_message(f"{job.name} is {job.state}. {job.why}".strip())
    sys.exit(job.exit_code)


def _plain(line: Line) -> None:
    click.echo(f"{line.replica:<10} {line.text}")


def _with_time(line: Line) -> None:
    moment = datetime.fromtimestamp(float(line.time), UTC).isoformat(timespec="milliseconds")
    click.echo(f"{moment} {line.replica:<10} {line.text}")


def _as_json(line: Line) -> None:
    click.echo(json.dumps(vars(line), ensure_ascii=False))


@click.command()
@click.argument("job_id")
@click.argument("keys", nargs=-1)
@click.option("-f", "--follow", "follows", is_flag=True, help="Print each value as it arrives, until the job ends.")
@click.option("--csv", "as_csv", is_flag=True, help="Print every value as CSV.")
@click.option(
    "--buckets",
    type=click.IntRange(min=1),
    default=1000,
    show_default=True,
    help="Number of buckets in JSON and YAML output.",
)
@output.option
@take
def metrics(
    session: Session, job_id: str, keys: tuple[str, ...], follows: bool, as_csv: bool, buckets: int, form: str
) -> None:
    """Show the metrics KEYS of a job, such as cost. Default: all metrics."""
    wanted = ",".join(keys) or None
    with session.portal() as portal:
        if as_csv:
            _print_csv(portal, job_id, wanted, follows=follows)
        elif follows:
            for point in portal.jobs.metrics.follow(job_id, keys=wanted):
                click.echo(_point(point))
        else:
            found = portal.jobs.metrics.chart(job_id, wanted, buckets=buckets)
            _show_series(found.series, form)
            if found.left_out:
                print_message(_left_out(job_id, found.left_out))
            return
        if follows:
            exit_with(portal.jobs.get(job_id))


def _left_out(job_id: str, names: Sequence[str]) -> str:
    some = " ".join(names[:3])
    return f"{len(names):,} further metrics are not shown. Name them to see them: regatta metrics {job_id} {some}"


def _print_csv(portal: Client, job_id: str, keys: str | None, *, follows: bool) -> None:
    click.echo("seq,time,attempt,replica,step,key,value")
    read = portal.jobs.metrics.follow if follows else portal.jobs.metrics.points
    for point in read(job_id, keys=keys):
        click.echo(output.csv_line(vars(point).values()))


def _point(point: Point) -> str:
    return f"{point.replica:<10} step {output.number(point.step):<8} {point.key} {output.number(point.value)}"


def _show_series(found: Mapping[str, Series], form: str) -> None:
    rows = [(name, *map(output.number, _summary(series)), str(sum(series.count))) for name, series in found.items()]
    raw = {name: vars(series) for name, series in found.items()}
    heads = ("METRIC", "STEP", "LAST", "MIN", "MAX", "VALUES")
    output.show(form, Listing(heads, rows, raw, list(found), "The job has not reported any metrics yet."))


def _summary(series: Series) -> tuple[float, float, float, float]:
    return series.x[-1], series.last[-1], min(series.min), max(series.max)


@click.command()
@click.argument("job_id")
@output.option
@take
def events(session: Session, job_id: str, form: str) -> None:
    """Show the events of a job: state changes, and restarts and failures of replicas."""
    with session.portal() as portal:
        found = portal.jobs.events(job_id)
    rows = [(str(event.get("time") or ""), str(event.get("replica") or ""), str(event["text"])) for event in found]
    output.show(form, Listing(("TIME", "REPLICA", "WHAT"), rows, found, [row[0] for row in rows]))


COMMANDS = (logs, metrics, events)
