"""N5: seeded hangs that are named rightly, and false alarms in healthy runs.

Each hang is a job on a local portal with ``stall_timeout: 20s``. It is named rightly if the first event of the kind
``stalled`` comes within 30 s after the threshold and has the replica and the words of ``seeded_hangs``. A hang that
cannot be seeded on this machine counts as not named. Healthy runs are 200 through the decision with a clock of their
own, with two evaluations of five minutes each, half of them declared, and real jobs with an evaluation that is longer
than the threshold.
"""

from __future__ import annotations

import random
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import httpx

from bench.environment.servers import Absent
from bench.inspection.replica_processes import small_disk
from bench.inspection.seeded_hangs import HANGS, REACHED, STALL_TIMEOUT_SECONDS, Hang, spec_of
from bench.pages.start import answer_of, cancel, namespace_of, running_here, signed_in, wait_until
from bench.report import Row, at_least, at_most
from bench.scale import scale
from jobs.lifecycle.progress.signs import Point, Signs
from jobs.lifecycle.progress.stalls import quiet_seconds
from runtime import contract

HANGS_GOAL, ALARMS_GOAL = 11, 0
WITHIN_SECONDS = 30.0
HEALTHY_RUNS = scale(200, 20)
SEEDED: Sequence[Hang] = scale(HANGS, HANGS[:1])
_ASK_SECONDS = 0.5
_TRAINERS = ("trainer-0", "trainer-1", "trainer-2")
_LOOK_SECONDS = 5.0
_EVALUATION_SECONDS = 300.0

# An evaluation of 40 s: undeclared, declared, and as long steps of the loop.
REAL: Mapping[str, str] = scale(
    {
        "undeclared": "evaluate(40)",
        "declared": "with job.evaluation():\n            evaluate(40)",
        "long steps": "evaluate(12)",
    },
    {"declared": "with job.evaluation():\n            evaluate(4)"},
)
_HEALTHY_SCRIPT = """\
import time
import numpy as np
from runtime import dist

job = dist.init()
params = job.params({{"w": np.zeros(16, "f4")}}, opt=dist.SGD(0.1))
step = 0


def evaluate(seconds):
    end, total = time.monotonic() + seconds, 0.0
    while time.monotonic() < end:
        total += float(np.random.default_rng(0).normal(size=100_000).sum())
        time.sleep(0.05)
    return total


for _ in job.steps(job.reader("public/digits", batch=64)):
    step += 1
    time.sleep(0.02)
    if job.trainer == 0 and step % 200 == 0:
        {evaluation}
        print("{reached}", flush=True)
    params.push_pull({{"w": np.ones(16, "f4")}})
"""


def measure() -> Iterator[Row]:
    yield _row_of_decisions()
    yield _row_of_healthy_jobs()
    yield row_of({hang.name: _outcome(hang) for hang in SEEDED})


def row_of(outcomes: Mapping[str, str]) -> Row:
    """Return the row of the hangs by name; an empty outcome: it was named rightly."""
    failed = {name: why for name, why in outcomes.items() if why}
    note = "; ".join(f"{name}: {why}" for name, why in failed.items())
    case = f"hangs of {len(outcomes)} named rightly, {WITHIN_SECONDS:g} s after the threshold at most"
    return at_least("N5", case, len(outcomes) - len(failed), HANGS_GOAL, note=note)


# --- Hangs -----------------------------------------------------------------------------------------------------------
def _outcome(hang: Hang) -> str:
    """Return why a hang was not named rightly; empty if it was."""
    if hang.impossible:
        return f"not seeded: {hang.impossible}"
    try:
        with _portal(hang.disk) as (data, http):
            return _seed(hang, data, http)
    except Absent as error:
        return f"not seeded: {error}"
    except (RuntimeError, httpx.HTTPError) as error:
        return f"failed: {' '.join(str(error).split())[:200]}"


@contextmanager
def _portal(disk: bool = False) -> Iterator[tuple[Path, httpx.Client]]:
    with tempfile.TemporaryDirectory(prefix="regatta-bench-") as scratch, ExitStack() as stack:
        if disk:
            stack.enter_context(small_disk(Path(scratch) / "attempts"))
        portal = stack.enter_context(running_here(Path(scratch)))
        yield Path(scratch), stack.enter_context(signed_in(portal))


def _seed(hang: Hang, data: Path, http: httpx.Client) -> str:
    with _job(http, spec_of("hangs", hang.script)) as job, ExitStack() as stack:
        if hang.outside is not None:
            stack.enter_context(hang.outside(data))
        deadline = time.monotonic() + STALL_TIMEOUT_SECONDS + WITHIN_SECONDS
        while not (events := _alarms(http, job)):
            if time.monotonic() > deadline:
                return "no event"
            time.sleep(_ASK_SECONDS)
    return "" if hang.is_named_by(events[0]) else f"named as “{events[0]['text']}”"


@contextmanager
def _job(http: httpx.Client, spec: Mapping[str, Any]) -> Iterator[str]:
    """Provide a job whose script has printed ``REACHED``."""
    job: str = answer_of(http.post(f"/api/v1/namespaces/{namespace_of(http)}/jobs", json=spec))["id"]
    try:
        wait_until(http, f"/api/v1/jobs/{job}/logs", lambda page: any(REACHED in one["text"] for one in page["lines"]))
        yield job
    finally:
        cancel(http, job)


def _alarms(http: httpx.Client, job: str) -> list[dict[str, Any]]:
    found = answer_of(http.get(f"/api/v1/jobs/{job}/events"))["events"]
    return [event for event in found if event["kind"] == "stalled"]


# --- Healthy runs ----------------------------------------------------------------------------------------------------
def _row_of_healthy_jobs() -> Row:
    alarms = {}
    with _portal() as (_, http):
        for name, evaluation in REAL.items():
            script = _HEALTHY_SCRIPT.format(evaluation=evaluation, reached=REACHED)
            with _job(http, spec_of("healthy", script)) as job:
                alarms[name] = len(_alarms(http, job))
    note = ", ".join(name for name, count in alarms.items() if count)
    case = f"false alarms in {len(alarms)} healthy jobs with an evaluation above the threshold"
    return at_most("N5", case, sum(alarms.values()), ALARMS_GOAL, note=note)


def _row_of_decisions() -> Row:
    alarms = sum(alarms_of_healthy_run(seed, declared=seed % 2 == 0) for seed in range(HEALTHY_RUNS))
    case = f"false alarms in {HEALTHY_RUNS} healthy runs through the decision"
    return at_most("N5", case, alarms, ALARMS_GOAL)


def alarms_of_healthy_run(seed: int, *, declared: bool) -> bool:
    """Return whether a run with varying steps and two evaluations of five minutes raises an alarm."""
    chance = random.Random(seed)
    usual = 10 ** chance.uniform(-2, 1.2)
    signs, now = Signs(since=0.0), 0.0
    alarms = False
    for _ in range(2):
        for _ in range(25):
            seconds = usual * chance.lognormvariate(0, 0.4) * (10 if chance.random() < 0.005 else 1)
            alarms |= _pass(signs, now, seconds)
            now += max(seconds, 2.0)
            signs.note_points((Point(name, key, seconds / 4) for name in _TRAINERS for key in contract.STEP_PARTS), now)
        signs.note_points([Point("trainer-0", contract.STEP_PAUSED, 1.0)] if declared else [], now)
        alarms |= _pass(signs, now, _EVALUATION_SECONDS)
        now += _EVALUATION_SECONDS
        signs.note_points([Point("trainer-0", contract.STEP_PAUSED, 0.0)] if declared else [], now)
    return alarms


def _pass(signs: Signs, began: float, seconds: float) -> bool:
    """Let a step pass in which trainer-0 works and the others wait for it. Return whether it raises an alarm."""
    alarm, passed = False, _LOOK_SECONDS
    while passed < seconds:
        now = began + passed
        for name in _TRAINERS:
            part, still = ("compute", 0.0) if name == "trainer-0" else ("wait", passed)
            states = {contract.STEP_OPEN + part: passed, contract.STEP_STILL: still}
            signs.note_points((Point(name, key, value) for key, value in states.items()), now)
        alarm |= quiet_seconds(signs, now, None) is not None
        passed += _LOOK_SECONDS
    return alarm
