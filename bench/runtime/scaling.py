"""R5: records per second of two trainers relative to one, a compute-bound model, batches read as a dataset.

Each trainer reads 1 KB records of a dataset as in a job (``Job.reader``, ``Job.steps``), gets its tasks from a master
over TCP, and pushes gradients to a parameter server over TCP. Master, server and every trainer are separate processes
with one thread for linear algebra each. The two sizes take turns, round by round, each with a new job on the same data.
The clock runs from the moment when all trainers have their parameters until the last one finishes. The machine's own
limit is measured too: processes that train as much on batches in memory, without the runtime. The overhead of the
runtime beyond that is the ratio.

``python -m bench.runtime.scaling ROLE ...`` is one of the processes.
"""

from __future__ import annotations

import json
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bench.environment.processes import Process, answer, one_thread, ready, running, send_line
from bench.report import Row
from bench.runtime.step_process import FIRST_INCARNATION
from bench.scale import scale
from runtime import contract, coordination
from runtime.data import catalogue, record_codec, recordio
from runtime.master.listener import Reception
from runtime.master.messages import Trainer
from runtime.master.queue_store import Ledger
from runtime.master.server import Master
from runtime.master.task_table import partition
from runtime.master.types import Plan
from runtime.parameters.optimisers import SGD
from runtime.protocol.client import Client
from runtime.trainer.job import Job
from runtime.trainer.metric_sinks import Sink, TerminalSink
from runtime.trainer.parameter_store import Store
from runtime.trainer.pause_gate import PauseGate
from runtime.trainer.servers.server_store import ServerStore
from runtime.trainer.tasks.task_client import TaskClient, TaskSource
from runtime.trainer.tasks.task_prefetch import PrefetchingSource

GOAL = 1.8
ROUNDS = scale(5, 1)
DATASET = "bench/kilobytes"
FEATURES, HIDDEN, CLASSES = 256, 768, 10
# Every task is whole batches, and there are as many for one trainer as for the other.
BATCH, TASK_BATCHES, TASKS = 512, 4, scale(16, 4)
RECORDS = BATCH * TASK_BATCHES * TASKS

Model = dict[str, NDArray[Any]]


def measure() -> Iterator[Row]:
    with tempfile.TemporaryDirectory(prefix="regatta-bench-") as scratch:
        _write_data(Path(scratch))
        rates: dict[tuple[str, int], list[float]] = {(kind, n): [] for n in (1, 2) for kind in ("job", "bare")}
        for number in range(ROUNDS):
            for trainers in (1, 2):
                rates["job", trainers].append(_job_rate(Path(scratch), trainers, number))
                rates["bare", trainers].append(_bare_rate(trainers))
    ours, bare = (median(rates[kind, 2]) / median(rates[kind, 1]) for kind in ("job", "bare"))
    one, two = (median(rates["job", trainers]) for trainers in (1, 2))
    note = f"{one:,.0f} and {two:,.0f} records/s; the peer is the same work without a runtime"
    case = "records/s of 2 trainers over 1: dataset, master and server over TCP"
    ratio = round(ours / bare, 2)
    yield Row("R5", case, round(ours, 2), f">= {GOAL:g}", ours >= GOAL, round(bare, 2), ratio, note=note)


def _write_data(root: Path) -> None:
    """Write a chunk for each task; 1 KB of features in each record."""
    directory = root / DATASET
    directory.mkdir(parents=True)
    rng = np.random.default_rng(7)
    with (directory / "train.recordio").open("wb") as file, recordio.Writer(file, compressor="none") as writer:
        for _task in range(TASKS):
            for features in rng.normal(size=(BATCH * TASK_BATCHES, FEATURES)).astype("f4"):
                writer.write(record_codec.encode(features, int(abs(features[0]) * 10) % CLASSES))
            writer.flush()
    splits = {"train": {"records": RECORDS, "files": [{"path": "train.recordio"}]}}
    body = {
        "title": "Records of 1 KB",
        "task": "classification",
        "features": {"shape": [FEATURES]},
        "source": "made by the benchmark",
        "licence": "CC0",
        "splits": splits,
    }
    (directory / "dataset.json").write_text(json.dumps(body))


def _job_rate(root: Path, trainers: int, number: int) -> float:
    environment = {**one_thread(), contract.DATA_PATH: str(root), contract.DATASET: DATASET}
    with ExitStack() as stack:
        addresses = []
        store = f"sqlite:///{root}/{trainers}-{number}.db"
        for command in (
            ("bench.runtime.scaling", "master", store, trainers),
            ("bench.runtime.step_process", "server", 0, 1, trainers),
        ):
            serving = stack.enter_context(running([sys.executable, "-m", *map(str, command)], environment))
            addresses.append(answer(serving))
        return _rate(stack, trainers, environment, ["trainer", *addresses])


def _bare_rate(workers: int) -> float:
    with ExitStack() as stack:
        return _rate(stack, workers, one_thread(), ["bare", str(RECORDS // workers)])


def _rate(stack: ExitStack, count: int, environment: dict[str, str], words: Sequence[str]) -> float:
    """Return records per second of ``count`` processes that begin together."""
    command = [sys.executable, "-m", "bench.runtime.scaling", *words]
    group: Sequence[Process] = ready(
        stack.enter_context(running(command, {**environment, contract.INDEX: str(index)})) for index in range(count)
    )
    begun = time.perf_counter()
    for process in group:
        send_line(process, "go")
    trained = sum(int(answer(process)) for process in group)
    seconds = time.perf_counter() - begun
    if trained != RECORDS:
        raise RuntimeError(f"{trained} records were trained on, not {RECORDS}")
    return trained / seconds


# --- Processes -------------------------------------------------------------------------------------------------------
def lead(store: str, trainers: int) -> None:
    """Run the master of one job: print its address, serve until standard input ends."""
    environment = contract.read()
    found = catalogue.find(environment.dataset, environment.data_path)
    reception = Reception()
    connected = coordination.connect(store)
    plan = Plan(1, True, trainers, prefetch=True)
    table = partition(found.name, catalogue.chunks(found, "train"))
    master = Master(plan, table, Ledger(connected, "/bench/"), list, reception)
    master.members([Trainer(index, FIRST_INCARNATION + index) for index in range(trainers)])
    print(reception.address, flush=True)
    sys.stdin.read()
    master.close()
    reception.close()
    connected.close()


class Linked:
    """Trainer environment with fixed addresses of master and server; no memory is shared."""

    def __init__(self, environment: contract.Environment, master: str, server: str) -> None:
        self.sink: Sink = TerminalSink(lambda line: None)
        self.gate = PauseGate(lambda _stands, _version: None)
        self._index, self._incarnation = environment.index, FIRST_INCARNATION + environment.index
        self._master, self._server = master, server

    def tasks(self, dataset: str, passes: int | None) -> TaskSource:
        return PrefetchingSource(TaskClient(self._master, self._index, self._incarnation))

    def store(self, wire: str) -> Store:
        return ServerStore([Client(self._server, incarnation=self._incarnation)], share=False, wire=wire)

    def why_leave(self) -> str:
        return ""

    def wait(self, seconds: float) -> None:
        time.sleep(seconds)


@contextmanager
def _started() -> Iterator[None]:
    print("ready", flush=True)
    sys.stdin.readline()
    yield


def train(master: str, server: str) -> None:
    """Train on every task of the master; print the number of records."""
    environment = contract.read()
    # A job that is not alone: its master sets the number of passes, and one queue serves all its loops.
    job = Job(replace(environment, agent_fd=0), Linked(environment, master, server))
    params = job.params(_model(), opt=SGD(1e-3))
    trained = 0
    with _started():
        for x, y in job.steps(job.reader(DATASET, batch=BATCH)):
            params.push_pull(_gradients(params, x, y), n=len(y))
            trained += len(y)
    print(trained, flush=True)


def train_bare(count: int) -> None:
    """Do the same work on a batch in memory."""
    model, rng = _model(), np.random.default_rng(7)
    x, y = rng.normal(size=(BATCH, FEATURES)).astype("f4"), rng.integers(0, CLASSES, BATCH)
    with _started():
        for _ in range(count // BATCH):
            for name, gradient in _gradients(model, x, y).items():
                model[name] -= np.float32(1e-3) * gradient
    print(count, flush=True)


def _model() -> Model:
    rng = np.random.default_rng(1)
    shapes = {"w1": (FEATURES, HIDDEN), "w2": (HIDDEN, HIDDEN), "w3": (HIDDEN, CLASSES)}
    return {name: (rng.normal(size=shape) * 0.02).astype("f4") for name, shape in shapes.items()}


def _gradients(p: Any, x: NDArray[Any], y: NDArray[Any]) -> Model:
    first = np.maximum(x @ p["w1"], 0)
    second = np.maximum(first @ p["w2"], 0)
    z = second @ p["w3"]
    e = np.exp(z - z.max(1, keepdims=True))
    s = e / e.sum(1, keepdims=True)
    s[np.arange(len(y)), y] -= 1
    s /= len(y)
    back2 = (s @ p["w3"].T) * (second > 0)
    back1 = (back2 @ p["w2"].T) * (first > 0)
    return {"w1": x.T @ back1, "w2": first.T @ back2, "w3": second.T @ s}


def main(role: str, *rest: str) -> None:
    if role == "master":
        lead(rest[0], int(rest[1]))
    elif role == "trainer":
        train(*rest)
    else:
        train_bare(int(rest[0]))


if __name__ == "__main__":
    main(*sys.argv[1:])
