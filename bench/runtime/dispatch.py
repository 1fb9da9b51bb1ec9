"""R8: tasks that a master assigns and receives back as done, every change committed before it is answered.

A master in this process, on the embedded store and on an etcd with its data on the disk. Another process simulates
trainers that do no work. Each behaves as in a job: it processes its prefetched tasks, reports each on a separate
connection, then requests more with the message that reports them done, and so on through one pass. One thread simulates
all of them, because the master is measured and not how sixteen interpreters share two cores.
"""

from __future__ import annotations

import multiprocessing
import selectors
import socket
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path
from statistics import median
from typing import Any

from bench.environment.etcd import running_etcd
from bench.environment.servers import Absent
from bench.report import Row, at_least, at_most, missed
from bench.scale import scale
from runtime import coordination
from runtime.data.dataset import Chunk
from runtime.master.listener import Reception
from runtime.master.messages import Answer, JobDone, PassEnd, Task, Trainer, answer_from_json
from runtime.master.queue_store import Ledger
from runtime.master.server import Master
from runtime.master.task_table import TaskTable
from runtime.master.types import Plan
from runtime.protocol import frames
from runtime.protocol.frames import Flag, Header, Op

TASKS, TRAINERS, ROUNDS = scale(10_000, 500), 32, 5
EMBEDDED_GOAL, ETCD_GOAL, COMMIT_GOAL_KB = 5_000.0, 4_000.0, 100.0


def measure() -> list[Row]:
    return [
        _row("embedded store", EMBEDDED_GOAL, _on_embedded),
        _row("etcd on disk", ETCD_GOAL, _on_etcd),
        at_most("R8", f"largest commit of a pass over {TASKS:,} tasks, KB", _largest_commit() / 1024, COMMIT_GOAL_KB),
    ]


def _row(store: str, goal: float, one_round: Callable[[], float]) -> Row:
    case = f"tasks/s over the wire, {store}, {TRAINERS} trainers"
    try:
        rate = TASKS / median(one_round() for _ in range(ROUNDS))
    except Absent as error:
        return missed("R8", case, f">= {goal:g}", str(error))
    return at_least("R8", case, rate, goal)


def _largest_commit() -> int:
    """Return the bytes of keys and values of the largest transaction of one pass."""
    with _directory() as directory:
        store = _Measuring(coordination.connect(f"sqlite:///{directory}/store.db"))
        with _master(store) as (address, trainers):
            _drive(address, trainers)
    return max(store.sizes)


class _Measuring:
    """Coordination store that records the size of each transaction."""

    def __init__(self, store: Any) -> None:
        self._store = store
        self.sizes: list[int] = []

    def txn(self, compares: Sequence[Any], operations: Sequence[Any]) -> Any:
        puts = [each for each in operations if hasattr(each, "value")]
        self.sizes.append(sum(len(put.key) + len(put.value) for put in puts))
        return self._store.txn(compares, operations)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)


def _on_embedded() -> float:
    with _directory() as directory:
        return one_pass(f"sqlite:///{directory}/store.db")


def _on_etcd() -> float:
    with _directory() as directory, running_etcd(directory) as url:
        return one_pass(url)


def one_pass(url: str) -> float:
    """Return the seconds for one pass with the store at ``url``."""
    with _master(coordination.connect(url)) as (address, trainers):
        return _drive(address, trainers)


def _drive(address: str, trainers: Sequence[Trainer]) -> float:
    """Return the seconds in which another process goes through all tasks."""
    context = multiprocessing.get_context("spawn")
    near, far = context.Pipe()
    process = context.Process(target=_train, args=(address, trainers, far))
    process.start()
    far.close()  # so that a failure of the other process is read as end of file here
    seconds = float(near.recv())
    process.join()
    return seconds


@contextmanager
def _directory() -> Iterator[Path]:
    """Provide a directory on the disk of this working tree, not in memory."""
    Path("build").mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="bench-", dir=Path.cwd() / "build") as directory:
        yield Path(directory)


@contextmanager
def _master(store: Any) -> Iterator[tuple[str, list[Trainer]]]:
    table = TaskTable("bench", tuple((Chunk("/data/train.recordio", i * 100, 100, 10),) for i in range(TASKS)))
    trainers = [Trainer(index, 100 + index) for index in range(TRAINERS)]
    reception = Reception()
    plan = Plan(1, False, TRAINERS, prefetch=True)  # as in a job
    master = Master(plan, table, Ledger(store, "/bench/"), list, reception)
    master.members(trainers)
    yield reception.address, trainers
    master.close()
    reception.close()
    store.close()


class _SimulatedTrainer:
    """One trainer: its connections, and the number of its next request."""

    def __init__(self, address: str, trainer: Trainer) -> None:
        self.link, self._words = _dialled(address), _dialled(address)
        self._trainer = trainer
        self._request = 0

    def work(self, task: Task) -> None:
        """Do a task and those assigned with it, and request the next."""
        tasks = [task, *task.prefetched]
        for before, begun in pairwise(tasks):
            word = {"trainer": self._trainer.index, "done": _named(before), "begun": _named(begun)}
            self._words.sendmsg([self._frame(Op.TASK_BEGUN, word)], (), socket.MSG_MORE)
        self.ask(*tasks)

    def ask(self, *done: Task) -> None:
        self._request += 1
        body = {"trainer": self._trainer.index, "request": self._request, "ended": None, "done": _named(*done)}
        self.link.sendall(self._frame(Op.TASK_GET, body))

    def _frame(self, op: Op, body: Mapping[str, Any]) -> bytes:
        payload = frames.to_json(body)
        head = Header(op, Flag.LAST, incarnation=self._trainer.incarnation, seq=self._request)
        return frames.pack(head, payload) + payload

    def receive(self) -> Answer:
        """Receive one whole message, in however many pieces it arrives."""
        raw = self._received(frames.HEADER_BYTES)
        head = frames.unpack(raw)
        payload = self._received(head.size)
        frames.verify(raw, head, payload)
        return answer_from_json(frames.from_json(payload))

    def _received(self, size: int) -> bytes:
        data = self.link.recv(size, socket.MSG_WAITALL)
        if len(data) < size:
            raise ConnectionResetError("the master closed a trainer's connection")
        return data


def _dialled(address: str) -> socket.socket:
    host, port = address.split(":")
    link = socket.create_connection((host, int(port)))
    link.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return link


def _named(*tasks: Task) -> list[tuple[int, int, int]]:
    return [(task.pass_id, task.task_id, task.epoch) for task in tasks]


def _train(address: str, trainers: Sequence[Trainer], sender: multiprocessing.connection.Connection) -> None:
    selector = selectors.DefaultSelector()
    begun = time.perf_counter()
    for trainer in trainers:
        simulated = _SimulatedTrainer(address, trainer)
        selector.register(simulated.link, selectors.EVENT_READ, simulated)
        simulated.ask()
    while selector.get_map():
        for key, _events in selector.select():
            answer = key.data.receive()
            if isinstance(answer, JobDone | PassEnd):
                selector.unregister(key.fileobj)
            elif isinstance(answer, Task):
                key.data.work(answer)
            else:
                key.data.ask()
    sender.send(time.perf_counter() - begun)
