"""R8: tasks that a master hands out and takes back as done, every change committed before it is answered.

A master in this process, on the embedded store and on an etcd that keeps its data on the disk. Trainers that do no
work are played by another process: each asks for a task over its own connection, reports it done with the question for
the next, and so on through one pass. One thread plays them all, for what is measured is the master and not how sixteen
interpreters share two cores.
"""

from __future__ import annotations

import multiprocessing
import selectors
import shutil
import socket
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from statistics import median

from bench.etcd import running_etcd
from bench.report import Row
from runtime import coordination
from runtime.data.dataset import Chunk
from runtime.master.ledger import Ledger
from runtime.master.messages import Answer, JobDone, PassEnd, Task, Trainer, answer_from_json
from runtime.master.reception import Reception
from runtime.master.server import Master
from runtime.master.state import Plan
from runtime.master.table import TaskTable
from runtime.protocol import frames
from runtime.protocol.frames import Flag, Header, Op

TASKS, TRAINERS, ROUNDS = 10_000, 32, 5
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
    plan = Plan(1, False, TRAINERS, prefetch=coordination.is_elsewhere(url))  # as in a job
    master = Master(plan, table, Ledger(store, "/bench/"), list, reception)
    master.members(trainers)
    yield reception.address, trainers
    master.close()
    reception.close()
    store.close()


class _Asker:
    """One trainer: what it has, and the number of its next request."""

    def __init__(self, address: str, trainer: Trainer) -> None:
        host, port = address.split(":")
        self.link = socket.create_connection((host, int(port)))
        self.link.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._trainer = trainer
        self._request = 0

    def ask(self, done: Task | None) -> None:
        self._request += 1
        finished = [done.pass_id, done.task_id, done.epoch] if done else None
        body = {"trainer": self._trainer.index, "request": self._request, "ended": None, "done": finished}
        payload = frames.to_json(body)
        head = Header(Op.TASK_GET, Flag.LAST, incarnation=self._trainer.incarnation, seq=self._request)
        self.link.sendall(frames.pack(head, payload) + payload)

    def hear(self) -> Answer:
        data = self.link.recv(1 << 16)
        head, payload = frames.unpack(data[: frames.HEADER_BYTES]), data[frames.HEADER_BYTES :]
        frames.verify(data[: frames.HEADER_BYTES], head, payload)
        return answer_from_json(frames.from_json(payload))


def _train(address: str, trainers: Sequence[Trainer], told: multiprocessing.connection.Connection) -> None:
    selector = selectors.DefaultSelector()
    begun = time.perf_counter()
    for trainer in trainers:
        asker = _Asker(address, trainer)
        selector.register(asker.link, selectors.EVENT_READ, asker)
        asker.ask(None)
    while selector.get_map():
        for key, _events in selector.select():
            answer = key.data.hear()
            if isinstance(answer, JobDone | PassEnd):
                selector.unregister(key.fileobj)
            else:
                key.data.ask(answer if isinstance(answer, Task) else None)
    told.send(time.perf_counter() - begun)


if __name__ == "__main__":
    from bench import report

    print(report.table(measure()))
