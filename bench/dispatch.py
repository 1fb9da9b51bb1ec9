"""R8: tasks that a master hands out and takes back as done, every change committed before it is answered.

A master in this process, on the embedded store and on an etcd that keeps its data on the disk, and trainers in a
process of their own that do no work: each asks for a task over its own connection, reports it done with the question
for the next, and so on through one pass.
"""

from __future__ import annotations

import multiprocessing
import shutil
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from statistics import median

from bench.etcd import running_etcd
from bench.report import Row
from runtime import coordination
from runtime.data.catalogue import Chunk
from runtime.master.ledger import Ledger
from runtime.master.messages import JobDone, PassEnd, Task, Trainer
from runtime.master.reception import Reception
from runtime.master.server import Master
from runtime.master.state import Plan
from runtime.master.table import TaskTable
from runtime.trainer.tasks import TaskClient

TASKS, TRAINERS, ROUNDS = 10_000, 16, 5
EMBEDDED_GOAL, ETCD_GOAL = 5_000.0, 4_000.0


def measure() -> list[Row]:
    rows = [_row("embedded store", EMBEDDED_GOAL, _on_embedded)]
    if shutil.which("etcd"):
        rows.append(_row("etcd on disk", ETCD_GOAL, _on_etcd))
    return rows


def _row(store: str, goal: float, one_round: Callable[[], float]) -> Row:
    rate = TASKS / median(one_round() for _ in range(ROUNDS))
    name = f"tasks/s over the wire, {store}, {TRAINERS} trainers"
    return Row("R8", name, round(rate, 1), f">= {goal:g}", met=rate >= goal)


def _on_embedded() -> float:
    with _directory() as directory:
        return one_pass(f"sqlite:///{directory}/store.db")


def _on_etcd() -> float:
    with _directory() as directory, running_etcd(directory) as url:
        return one_pass(url)


def one_pass(url: str) -> float:
    """Seconds for one pass with the store at ``url``."""
    with _master(url) as (address, trainers):
        context = multiprocessing.get_context("spawn")
        near, far = context.Pipe()
        process = context.Process(target=_train, args=(address, trainers, far))
        process.start()
        seconds = float(near.recv())
        process.join()
    return seconds


@contextmanager
def _directory() -> Iterator[Path]:
    """On the disk of this working tree, which is no memory."""
    with tempfile.TemporaryDirectory(prefix="bench-", dir=Path.cwd() / "build") as directory:
        yield Path(directory)


@contextmanager
def _master(url: str) -> Iterator[tuple[str, list[Trainer]]]:
    table = TaskTable("bench", tuple((Chunk("/data/train.recordio", i * 100, 100, 10),) for i in range(TASKS)))
    trainers = [Trainer(index, 100 + index) for index in range(TRAINERS)]
    store, reception = coordination.connect(url), Reception()
    master = Master(Plan(1, False, TRAINERS), table, Ledger(store, "/bench/"), list, reception)
    master.members(trainers)
    yield reception.address, trainers
    master.close()
    reception.close()
    store.close()


def _train(address: str, trainers: Sequence[Trainer], told: multiprocessing.connection.Connection) -> None:
    clients = [TaskClient(address, trainer.index, trainer.incarnation) for trainer in trainers]
    told.send(_together([partial(_work, client) for client in clients]))


def _together(duties: Sequence[Callable[[], None]]) -> float:
    threads = [threading.Thread(target=duty) for duty in duties]
    begun = time.perf_counter()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return time.perf_counter() - begun


def _work(client: TaskClient) -> None:
    answer = client.next_task()
    while not isinstance(answer, JobDone | PassEnd):
        answer = client.next_task(answer if isinstance(answer, Task) else None)
    client.close()


if __name__ == "__main__":
    from bench import report

    print(report.table(measure()))
