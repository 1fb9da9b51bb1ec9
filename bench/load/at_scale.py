"""X1, X2, X3: web, worker and sweeps under the load of many jobs, on PostgreSQL and Redis, at a part of the full row.

Two web processes, a worker and two sweeps are the portal's own. The replicas are simulated and speak the ingest
protocol (``bench.load.replicas``); only the backend is replaced. The number of ended jobs is that of the full row:
copies of a job that the portal has run (``bench.load.ended_jobs``). The full row has 1,000 running jobs of 8 replicas,
each job with 10 lines and 10 points a second: more than two cores hold. ``BENCH_LOAD`` (default 0.1) reduces it:

* Running and waiting jobs: that part of 1,000 each. Most are quiet: their replicas send a heartbeat a minute.
* Jobs at the full pace: the part ``SPEAKING`` of the running ones. The cost of a call is taken at two numbers of them:
  a machine that is too slow makes fewer calls, with larger batches.
* Browsers: that part of 500, all on jobs at the full pace.

``BENCH_LOAD_ENDED`` and ``BENCH_LOAD_SECONDS`` reduce the ended jobs and the time under load. The cost of a pass is
taken at two numbers of jobs, and its straight line is extrapolated in the notes. A row counts as reached only at the
full row. X3 compares the end of ``SECONDS`` with their sixth, as an hour with ten minutes.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, NamedTuple

import httpx

from bench.environment import servers, stage
from bench.load import ended_jobs, portal_stack
from bench.load.browsers import Visit
from bench.load.portal_stack import PATIENCE_SECONDS, Stack
from bench.report import Row, missed
from bench.scale import scale

FULL_JOBS, FULL_ENDED, FULL_BROWSERS, REPLICAS = 1000, 100_000, 500, 8
PART = float(os.environ.get("BENCH_LOAD", "0.1"))
JOBS = scale(int(FULL_JOBS * PART), 2)
ENDED = int(os.environ.get("BENCH_LOAD_ENDED", "0")) or scale(FULL_ENDED, 20)
SPEAKING = 0.04
SPEAKERS = scale(max(2, int(JOBS * SPEAKING)), 1)
BROWSERS = scale(int(FULL_BROWSERS * PART), 1)
SECONDS = float(os.environ.get("BENCH_LOAD_SECONDS", "0")) or scale(600.0, 6.0)
SUBMISSIONS = max(2, int(SECONDS / 6))
WINDOW = scale(30.0, 2.0)
RAMP_SECONDS = 1500.0
FULL_PACE, QUIET_PACE = (10.0, 10.0, 2.0), (0.0, 0.0, 60.0)
# Of a job at the full pace, a second: batches of one line (5 trainers print 2 lines a second each), batches of three
# points, and heartbeats of the three other replicas.
CALLS_A_JOB = 10 + 10 / 3 + 3 / 2
SWEEP_MS, RUNNING_SECONDS, API_MS, GROWTH = 500.0, 5.0, 300.0, 1.05
LINES_GOAL = 0
_LOAD, _FRESH = "load", "fresh"
_SPEC = {
    "name": "load",
    "files": {"train.py": "pass\n"},
    "dataset": "public/digits",
    "timeout": "23h",
    "roles": {"trainer": {"replicas": 5, "cpu": 0.1}, "pserver": {"replicas": 2, "cpu": 0.1}},
}


def measure() -> Iterator[Row]:
    with tempfile.TemporaryDirectory(prefix="regatta-bench-") as scratch:
        folder = Path(scratch)
        try:
            with portal_stack.servers(folder) as environment:
                os.environ |= environment
                stage.open_database(folder / "data", environment["REGATTA_DATABASE_URL"])
                with portal_stack.started(folder, environment) as stack:
                    yield from _rows(stack)
        except servers.Absent as error:
            for row in ("X1", "X2", "X3"):
                yield missed(row, "portal on PostgreSQL and Redis", "none", str(error))


# --- Costs in a window -----------------------------------------------------------------------------------------------
class Window(NamedTuple):
    """What a stretch of time has cost. CPU in seconds per second, passes of the sweeps in CPU seconds each."""

    jobs: int
    calls: float
    pass_cpu: float
    passes: float
    web: float
    worker: float
    database: float
    agents: Mapping[str, Any]


@contextmanager
def _window(stack: Stack, jobs: int) -> Iterator[list[Window]]:
    """Measure the block. The window is appended to the list at its end."""
    found: list[Window] = []
    stack.ask(op="count")
    before, began = _state(stack), time.monotonic()
    yield found
    after, seconds = _state(stack), time.monotonic() - began
    agents = stack.ask(op="count")
    spent = {name: after[name] - before[name] for name in after}
    passes = [(spent[f"sweep-{n}"], spent[f"passes-{n}"]) for n in range(portal_stack.SWEEPS)]
    # Of two sweeps, the one that does the work.
    cpu, count = max(passes)
    found.append(
        Window(
            jobs,
            agents["calls"] / seconds,
            cpu / max(1.0, count),
            count / seconds,
            sum(spent[f"web-{n}"] for n in range(portal_stack.WEBS)) / seconds,
            spent["worker-0"] / seconds,
            spent["database"] / seconds,
            agents,
        )
    )


def _state(stack: Stack) -> dict[str, float]:
    found = {"database": portal_stack.cpu_of_postgres(stack.folder)}
    for kind in ("web", "worker", "sweep"):
        for number, process in enumerate(stack.of(kind)):
            found[f"{kind}-{number}"] = portal_stack.used(process.pid).cpu
    for number, process in enumerate(stack.of("sweep")):
        found[f"passes-{number}"] = portal_stack.metric(process, "regatta_sweep_pass_seconds_count")
    return found


def at_full(few: tuple[float, float], many: tuple[float, float], full: float) -> float:
    """Return the value at ``full`` of the straight line through two points (number, cost). Pure."""
    (x, low), (y, high) = few, many
    return low + (high - low) * (full - x) / (y - x) if y != x else high


# --- The load --------------------------------------------------------------------------------------------------------
def _rows(stack: Stack) -> Iterator[Row]:
    _accounts()
    _ended(stack)
    quiet = [_quiet(stack, count) for count in (JOBS // 2, JOBS)]
    _submit(_LOAD, JOBS)  # these wait: the namespace runs no more
    loud = [_loud(stack, count) for count in (max(1, SPEAKERS // 2), SPEAKERS)]
    _note("quiet", quiet)
    _note("loud", loud)
    under = _under_load(stack)
    _note("load", [under.window])
    print(json.dumps(_tasks(stack)), json.dumps(_scans()), file=sys.stderr, flush=True)
    yield from _of_sweep(quiet, under)
    yield from _of_web(stack, loud, under)
    yield from _of_memory(under)


def _note(what: str, windows: list[Window]) -> None:
    """Print the windows: the rows show only a part of them."""
    for window in windows:
        shown = {**window._asdict(), "agents": {k: v for k, v in window.agents.items() if k != "attempts"}}
        print(f"{what}: {json.dumps(shown)}", file=sys.stderr, flush=True)


def _tasks(stack: Stack) -> list[dict[str, float]]:
    return [portal_stack.labelled(sweep, "regatta_sweep_task_seconds_total") for sweep in stack.of("sweep")]


def _scans() -> dict[str, int]:
    """Return the rows that were read by scans of whole tables, of the tables with most of them."""
    from django.db import connection

    with connection.cursor() as cursor:
        cursor.execute("SELECT relname, seq_tup_read FROM pg_stat_user_tables ORDER BY seq_tup_read DESC LIMIT 8")
        return dict(cursor.fetchall())


def _accounts() -> None:
    """Make the namespaces and an account that may submit to both."""
    from quota.models import Limit
    from rbac.models import Membership, Namespace, Role, User

    user = User.objects.create(username="loader", is_superuser=True)
    for name, jobs in ((_LOAD, JOBS), (_FRESH, SUBMISSIONS)):
        namespace = Namespace.objects.create(name=name)
        Membership.objects.create(namespace=namespace, user=user, role=Role.OWNER)
        for resource, amount in {"jobs": jobs, "cpu": 1e6, "memory": 1 << 60, "storage": 1 << 50}.items():
            Limit.objects.update_or_create(namespace=namespace, resource=resource, defaults={"amount": amount})


def _submit(namespace: str, count: int) -> list[str]:
    from jobs.selectors.specifications import parse
    from jobs.services.jobs import submit_job
    from rbac.models import User

    owner, spec = User.objects.get(username="loader"), parse(_SPEC)
    return [str(submit_job(actor=owner, namespace=namespace, spec=spec).job.pk) for _ in range(count)]


def _count(namespace: str, state: str) -> int:
    from jobs.models import Job

    return Job.objects.filter(namespace__name=namespace, state=state).count()


def _ended(stack: Stack) -> None:
    """Run one job to its end, and copy it."""
    from jobs.models import Attempt
    from jobs.models.streams import StreamHead

    stack.ask(op="speed", full=FULL_PACE, quiet=QUIET_PACE, speaking=1)
    (job,) = _submit(_FRESH, 1)
    servers.wait_until(lambda: _count(_FRESH, "RUNNING"), "the start of the first job", PATIENCE_SECONDS)
    time.sleep(WINDOW)
    stack.ask(op="speed", full=FULL_PACE, quiet=QUIET_PACE, speaking=0)
    stack.ask(op="finish", attempt=str(Attempt.objects.get(job_id=job).pk))
    servers.wait_until(lambda: _count(_FRESH, "SUCCEEDED"), "the end of the first job", PATIENCE_SECONDS)
    open_ = StreamHead.objects.filter(job_id=job).exclude(closed=True, unsealed=0)
    servers.wait_until(lambda: not open_.exists(), "the sealing of its streams", PATIENCE_SECONDS)
    ended_jobs.copy(job, ENDED)


def _quiet(stack: Stack, count: int) -> Window:
    """Run ``count`` jobs that send next to nothing."""
    stack.ask(op="speed", full=FULL_PACE, quiet=QUIET_PACE, speaking=0)
    began = time.monotonic()
    _submit(_LOAD, count - _count(_LOAD, "RUNNING"))
    servers.wait_until(lambda: _count(_LOAD, "RUNNING") == count, f"{count} running jobs", RAMP_SECONDS, 0.5)
    print(f"{count} jobs run after {time.monotonic() - began:.0f} s", file=sys.stderr, flush=True)
    time.sleep(WINDOW)
    with _window(stack, count) as found:
        time.sleep(WINDOW)
    return found[0]


def _loud(stack: Stack, count: int) -> Window:
    """Let ``count`` of the jobs send at the full pace. The first attempt of all was that of the ended job."""
    stack.ask(op="speed", full=FULL_PACE, quiet=QUIET_PACE, speaking=count + 1)
    time.sleep(WINDOW / 3)
    with _window(stack, count) as found:
        time.sleep(WINDOW)
    return found[0]


@dataclass
class UnderLoad:
    window: Window
    waits: list[float]
    browsers: Mapping[str, Any]
    memory: list[Mapping[str, float]]


def _under_load(stack: Stack) -> UnderLoad:
    """Add browsers and submissions for ``SECONDS``."""
    token, sessions = stage.tokens(1)[0], _sessions(BROWSERS)
    with _browsers(stack, sessions) as results, _window(stack, SPEAKERS) as found:
        began, memory = time.monotonic(), [_memory(stack)]
        with httpx.Client(base_url=f"http://127.0.0.1:{stack.ports[-1]}", timeout=60) as http:
            http.headers["Authorization"] = f"Bearer {token}"
            for number in range(SUBMISSIONS):
                time.sleep(max(0.0, began + number * SECONDS / SUBMISSIONS - time.monotonic()))
                http.post(f"/api/v1/namespaces/{_FRESH}/jobs", json=_SPEC).raise_for_status()
                if len(memory) == 1 and time.monotonic() - began >= SECONDS / 6:
                    memory.append(_memory(stack))
        time.sleep(max(0.0, began + SECONDS - time.monotonic()))
        memory.append(_memory(stack))
    servers.wait_until(
        lambda: _count(_FRESH, "RUNNING") == SUBMISSIONS,
        "the start of all submitted jobs",
        PATIENCE_SECONDS,
    )
    return UnderLoad(found[0], _waits(), results[0], memory[-2:])


def _sessions(count: int) -> list[str]:
    """Return the session cookies of ``count`` new accounts of the namespace."""
    from django.conf import settings
    from django.test import Client

    from rbac.models import Membership, Namespace, Role, User

    namespace, found = Namespace.objects.get(name=_LOAD), []
    for number in range(count):
        user = User.objects.create(username=f"visitor{number}")
        Membership.objects.create(namespace=namespace, user=user, role=Role.DEVELOPER)
        client = Client()
        client.force_login(user)
        found.append(client.cookies[settings.SESSION_COOKIE_NAME].value)
    return found


@contextmanager
def _browsers(stack: Stack, sessions: list[str]) -> Iterator[list[dict[str, Any]]]:
    """Run browsers during the block. Their results are appended to the list at its end."""
    jobs = list(_speaking_jobs(stack))
    path = stack.folder / "visit.json"
    path.write_text(json.dumps(asdict(Visit(list(stack.ports), _LOAD, sessions, jobs, WINDOW))))
    process = subprocess.Popen(
        [sys.executable, "-m", "bench.load.browsers", str(path)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    results: list[dict[str, Any]] = []
    try:
        yield results
        results.append(json.loads(process.communicate(timeout=60)[0].splitlines()[-1]))
    finally:
        process.kill()


def _speaking_jobs(stack: Stack) -> Iterator[str]:
    """Yield the jobs that have lines."""
    from jobs.models import Attempt

    speaking = [attempt for attempt, (lines, _) in stack.ask(op="count")["attempts"].items() if lines[0]]
    rows = Attempt.objects.filter(pk__in=speaking, job__state="RUNNING", job__namespace__name=_LOAD)
    yield from (str(pk) for pk in rows.values_list("job_id", flat=True))


def _memory(stack: Stack) -> Mapping[str, float]:
    """Return the bytes of the largest process of each kind."""
    kinds = ("web", "worker", "sweep")
    return {kind: max(portal_stack.used(process.pid).memory for process in stack.of(kind)) for kind in kinds}


def _waits() -> list[float]:
    """Return the seconds from each submission to RUNNING, sorted."""
    from jobs.models import Job

    rows = Job.objects.filter(namespace__name=_FRESH, state="RUNNING").values_list("created", "started")
    return sorted((started - created).total_seconds() for created, started in rows if started)


# --- Rows ------------------------------------------------------------------------------------------------------------
def _row(row: str, case: str, value: float, limit: float, note: str) -> Row:
    """Return a row that is reached only if it was measured at the full size."""
    full = JOBS >= FULL_JOBS and SPEAKERS >= FULL_JOBS and BROWSERS >= FULL_BROWSERS and ENDED >= FULL_ENDED
    return Row(row, case, round(value, 3), f"<= {limit:g}", full and value <= limit, note=note)


def percentile(values: list[float], share: float) -> float:
    """Return a percentile of sorted values; infinity if there are none."""
    return values[int(share * (len(values) - 1))] if values else float("inf")


def _size() -> str:
    running = f"{JOBS} running jobs of {REPLICAS} replicas, {SPEAKERS} of them at the full pace"
    return f"{running}, {JOBS} waiting, {ENDED:,} ended"


def _of_sweep(quiet: list[Window], under: UnderLoad) -> Iterator[Row]:
    few, many = ((one.jobs, 1000 * one.pass_cpu) for one in quiet)
    note = (
        f"{few[1]:.0f} ms at {few[0]} quiet jobs and {many[1]:.0f} ms at {many[0]}: "
        f"extrapolated {at_full(few, many, FULL_JOBS):.0f} ms at {FULL_JOBS:,}"
    )
    yield _row("X1", f"{_size()}: CPU of a sweep, ms", 1000 * under.window.pass_cpu, SWEEP_MS, note)
    waits = under.waits
    note = f"median {percentile(waits, 0.5):.1f} s of {len(waits)} submissions"
    yield _row("X1", "submission to RUNNING, p99 s", percentile(waits, 0.99), RUNNING_SECONDS, note)


def _of_web(stack: Stack, loud: list[Window], under: UnderLoad) -> Iterator[Row]:
    api = sorted(under.browsers["seconds"]["api"])
    note = f"{BROWSERS} of {FULL_BROWSERS} browsers, {under.browsers['failed']} failed requests; {cost_of_calls(loud)}"
    yield _row("X2", f"{_size()}, {BROWSERS} browsers: API p99, ms", 1000 * percentile(api, 0.99), API_MS, note)
    stack.ask(op="speed", full=FULL_PACE, quiet=QUIET_PACE, speaking=0)
    made, lost, doubled = _compare(stack)
    seen = under.browsers
    note = f"{made:,} lines, {seen['lines']:,} to browsers"
    yield _row("X2", "lines lost, of the API and of the sockets", lost + seen["lost"], LINES_GOAL, note)
    yield _row("X2", "lines doubled, of the API and of the sockets", doubled + seen["doubled"], LINES_GOAL, note)


def cost_of_calls(loud: list[Window]) -> str:
    """Return what a call of an agent costs, and the cores that all calls of the full row would take. Pure."""
    costs = [(one.web + one.database) / max(1e-9, one.calls) for one in loud]
    rates = " and ".join(
        f"{1000 * cost:.0f} ms at {one.calls:.0f} calls/s" for cost, one in zip(costs, loud, strict=True)
    )
    cores = min(costs) * CALLS_A_JOB * FULL_JOBS
    return f"CPU of web and PostgreSQL a call: {rates}; {CALLS_A_JOB * FULL_JOBS:,.0f} calls/s take {cores:.0f} cores"


def _compare(stack: Stack) -> tuple[int, int, int]:
    """Read the log of every job that printed, page by page after a cursor. Return lines made, lost and doubled."""
    from jobs.models import Attempt

    time.sleep(2.0)  # the last batches are sent
    made = {id_: lines[0] for id_, (lines, _) in stack.ask(op="count")["attempts"].items() if lines[0]}
    jobs = dict(Attempt.objects.filter(pk__in=made).values_list("pk", "job_id"))
    lost = doubled = 0
    with httpx.Client(base_url=f"http://127.0.0.1:{stack.ports[0]}", timeout=60) as http:
        http.headers["Authorization"] = f"Bearer {stage.tokens(1)[0]}"
        for attempt, job in jobs.items():
            kept = list(_kept(http, str(job)))
            lost += max(0, made[str(attempt)] - len(set(kept)))
            doubled += len(kept) - len(set(kept))
    return sum(made.values()), lost, doubled


def _kept(http: httpx.Client, job: str) -> Iterator[tuple[str, str]]:
    """Yield replica and number ("step N") of each line that a simulated trainer has printed."""
    after, more = 0, True
    while more:
        page = http.get(f"/api/v1/jobs/{job}/logs", params={"after": after, "limit": 1000}).raise_for_status().json()
        yield from ((one["replica"], one["text"].split(":")[0]) for one in page["lines"] if one["stream"] == "stdout")
        after, more = page["last"], page["more"]


def _of_memory(under: UnderLoad) -> Iterator[Row]:
    early, late = under.memory
    for kind in early:
        note = f"{early[kind] / 1e6:.0f} to {late[kind] / 1e6:.0f} MB"
        case = f"memory of {kind} after {SECONDS:g} s against after {SECONDS / 6:g} s"
        yield _row("X3", case, late[kind] / early[kind], GROWTH, note)
