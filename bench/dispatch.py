"""R8: tasks that a master hands out and takes back as done, every change committed before it is answered.

A master on the embedded store in this process, and trainers in a process of their own that do no work: each asks for a
task over its own connection, reports it done, and so on through one pass. The second row leaves the wire away: the
trainers are threads that call the master.
"""

from __future__ import annotations

import multiprocessing
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from statistics import median

from bench.report import Row
from runtime.coordination.embedded import EmbeddedStore
from runtime.data.catalogue import Chunk
from runtime.master.ledger import Ledger
from runtime.master.messages import JobDone, PassEnd, Task, Trainer
from runtime.master.server import Master, MasterSession
from runtime.master.state import Key, Plan
from runtime.master.table import TaskTable
from runtime.protocol.server import Server
from runtime.trainer.tasks import TaskClient

TASKS, TRAINERS, ROUNDS = 10_000, 16, 5
GOAL = 5_000.0


def measure() -> list[Row]:
    rows: list[Row] = []
    for case, one_round in (("over the wire", over_the_wire), ("without the wire", without_the_wire)):
        rate = TASKS / median(one_round() for _ in range(ROUNDS))
        name = f"tasks/s, embedded store, {TRAINERS} trainers, {case}"
        rows.append(Row("R8", name, round(rate, 1), f">= {GOAL:g}", met=rate >= GOAL))
    return rows


def over_the_wire() -> float:
    """Seconds for one pass."""
    with _master() as (master, trainers):
        server = Server(lambda: MasterSession(master))
        server.start()
        context = multiprocessing.get_context("spawn")
        near, far = context.Pipe()
        process = context.Process(target=_train, args=(server.address, trainers, far))
        process.start()
        seconds = float(near.recv())
        process.join()
        server.close()
    return seconds


def without_the_wire() -> float:
    with _master() as (master, trainers):
        return _together([partial(_work_directly, master, trainer) for trainer in trainers])


@contextmanager
def _master() -> Iterator[tuple[Master, list[Trainer]]]:
    table = TaskTable("bench", tuple((Chunk("/data/train.recordio", i * 100, 100, 10),) for i in range(TASKS)))
    trainers = [Trainer(index, 100 + index) for index in range(TRAINERS)]
    with tempfile.TemporaryDirectory(prefix="regatta-bench-") as directory:
        store = EmbeddedStore(Path(directory) / "store.db")
        master = Master(Plan(1, False, TRAINERS), table, Ledger(store, "/bench/"), list)
        master.members(trainers)
        yield master, trainers
        master.close()
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


def _work_directly(master: Master, trainer: Trainer) -> None:
    request, finished = 0, None
    while True:
        request += 1
        answer = master.get(trainer, request, None, lambda: None, finished)
        if isinstance(answer, JobDone | PassEnd):
            return
        finished = Key(answer.pass_id, answer.task_id, answer.epoch, trainer) if isinstance(answer, Task) else None


if __name__ == "__main__":
    from bench import report

    print(report.table(measure()))
