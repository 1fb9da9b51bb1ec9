"""The work of the trainers of the fault tests, and its recording: ``python -m tests.faults.workloads NAME``."""

from __future__ import annotations

import hashlib
import os
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np

from bench.runtime.proxy import dial_through
from runtime import contract, dist
from runtime.errors import Leaving, Lost
from runtime.parameters.sharding import even_table, server_of
from runtime.trainer.environment import end_for_restart
from runtime.trainer.job import Job
from runtime.trainer.tasks.task_client import JobDone, Task, Wait
from tests.faults.listener import ConnectionWitness
from tests.faults.recording.history import ENOUGH, HISTORY, PROXY, SOURCE, Recorder

# Every amount is a multiple of it, so that a share of up to an eighth of it is a whole number.
UNIT = 840
ELEMENTS = 600


def queue(job: Job, recorder: Recorder) -> None:
    """W1: take tasks and finish them, and nothing else."""
    source = job.source()
    while not isinstance(answer := source.next_task(), JobDone):
        if isinstance(answer, Task):
            key = {"pass_id": answer.pass_id, "task": answer.task_id, "epoch": answer.epoch}
            recorder.note("got", **key)
            work()
            recorder.note("finished" if source.done(answer) else "stale", **key)
        elif isinstance(answer, Wait) and answer.seconds:
            recorder.note("waited")


def bank(job: Job, recorder: Recorder) -> None:
    """W2: every step withdraws an integer from an account on each server."""
    servers = contract.read().pservers
    accounts = _one_name_for_each(servers)
    params = job.params({name: np.zeros(ELEMENTS, "f4") for name in accounts}, opt=dist.SGD(1.0))
    recorder.note("joined", **_seen(params))
    for x, _y in job.steps(job.reader(batch=1)):
        amount = UNIT * (1 + (int(x[0][0]) + job.trainer) % 3)
        recorder.note("pushing", amount=amount)
        work()
        params.push_pull({name: np.full(ELEMENTS, amount, "f4") for name in accounts})
        recorder.note("pulled", **_seen(params))
    params.pull()
    recorder.note("ended", **_seen(params))


def poison(job: Job, recorder: Recorder) -> None:
    """W5: one record kills every trainer that reads it."""
    bad = int(os.environ["REGATTA_FAULTS_BAD_RECORD"])
    for x, _y in job.steps(job.reader(batch=1)):
        number = int(x[0][0])
        recorder.note("trying", record=number)
        if number == bad:
            os.abort()
        recorder.note("trained", record=number)


def regression(job: Job, recorder: Recorder) -> None:
    """W6: a real training, of a line through noisy points."""
    params = job.params({"w": np.zeros(2, "f8")}, opt=dist.SGD(0.1))
    for x, _y in job.steps(job.reader(batch=8)):
        cost, gradient = squared_error(params["w"], x.astype("f8"))
        params.push_pull({"w": gradient}, n=len(x))
        recorder.note("pulled", cost=cost)
    params.pull()
    recorder.note("ended", weights=params["w"].tolist())


def squared_error(weights: np.ndarray, x: np.ndarray) -> tuple[float, np.ndarray]:
    """Cost and gradient of a line through points; a record's number is its point."""
    at = np.stack([(x[:, 0] % 17) / 17, x[:, 1]], axis=1)
    error = at @ weights - (3.0 * at[:, 0] - 1.0 + 0.01 * np.sin(x[:, 0]))
    return float((error**2).mean()), 2 * at.T @ error / len(x)


def work() -> None:
    """Take a while, so that faults hit a running job; take no time once the test needs no more."""
    seconds = float(os.environ.get("REGATTA_FAULTS_PAUSE", "0"))
    if seconds and not (Path(os.environ[HISTORY]) / ENOUGH).exists():
        time.sleep(seconds)


def _seen(params: dist.Params) -> Mapping[str, object]:
    """The balances of the accounts at this trainer."""
    digest = hashlib.sha256(b"".join(params[name].tobytes() for name in params)).hexdigest()
    balances = [float(params[name][0]) for name in params]
    even = all((params[name] == params[name][0]).all() for name in params)
    return {"version": params.version, "balances": balances, "even": bool(even), "digest": digest}


def _one_name_for_each(servers: int) -> list[str]:
    """A parameter on each server, by their numbers."""
    table = even_table(servers)
    found: dict[int, str] = {}
    number = 0
    while len(found) < servers:
        name, number = f"account-{number}", number + 1
        found.setdefault(server_of(name, 0, table), name)
    return [found[server] for server in range(servers)]


WORKLOADS: Mapping[str, Callable[[Job, Recorder], None]] = {
    "queue": queue,
    "bank": bank,
    "poison": poison,
    "regression": regression,
}


def main(name: str) -> None:
    recorder = Recorder(Path(os.environ[HISTORY]), os.environ[SOURCE])
    ConnectionWitness(recorder).watch()
    dial_through(os.environ[PROXY])
    if os.environ.get("REGATTA_FAULTS_FAR"):
        del os.memfd_create  # as between two machines: no memory can be shared
    try:
        WORKLOADS[name](dist.init(), recorder)
    except (Lost, Leaving) as error:
        end_for_restart(str(error))


if __name__ == "__main__":
    main(sys.argv[1])
