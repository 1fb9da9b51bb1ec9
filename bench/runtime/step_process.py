"""One process of ours in R1, R1n, R1c, R2, R4, R9 and R10.

``server INDEX SERVERS TRAINERS``, or ``trainer INDEX ELEMENTS WIRE ADDRESSES`` where WIRE is ``shared``, ``bf16``,
``digits`` (R10) or ``socket``. ``keeper FOLDER`` is a server that writes a checkpoint for each line of standard input.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

from runtime import contract
from runtime.checkpoint.filesystem import LocalFiles
from runtime.checkpoint.index import Book
from runtime.contract import TRAINER, Member
from runtime.coordination.base import Compare
from runtime.coordination.embedded import EmbeddedStore
from runtime.parameters.optimisers import SGD, Adam
from runtime.parameters.sharding import even_table
from runtime.protocol.client import Client
from runtime.pserver.checkpointer import Checkpointer, Identity
from runtime.pserver.server import ShardServer
from runtime.pserver.shard import Shard
from runtime.trainer.environment import Alone
from runtime.trainer.job import Job
from runtime.trainer.params import Params
from runtime.trainer.servers.server_store import ServerStore

FIRST_INCARNATION = 100
BATCH = 72


def serve(index: int, servers: int, trainers: int) -> None:
    """Print the address, serve until standard input ends."""
    server = ShardServer(Shard(index, even_table(servers), trainers))
    server.change_members(Member(TRAINER, number, FIRST_INCARNATION + number) for number in range(trainers))
    server.start()
    print(server.address, flush=True)
    sys.stdin.read()
    server.close()


def keep(folder: Path) -> None:
    """Run a server of one trainer. For each input line, write a checkpoint and print the seconds."""
    server = ShardServer(Shard(0, even_table(1), 1))
    server.change_members([Member(TRAINER, 0, FIRST_INCARNATION)])
    server.start()
    store = EmbeddedStore(folder / "coordination.db")
    store.put("/registration", b"")
    owner = Compare("/registration", create_revision=store.list("/registration").revision)
    files, book = LocalFiles(folder / "checkpoints"), Book(store, "bench", 1, 1)
    # Due at every check.
    checkpointer = Checkpointer(server, Identity("bench", 0, 1), files, book, owner, 0.0, _complain, print)
    print(server.address, flush=True)
    for _line in sys.stdin:
        begun = time.perf_counter()
        checkpointer.look(time.monotonic() + 1)
        print(time.perf_counter() - begun, flush=True)
    server.close()


def _complain(_kind: str, text: str) -> None:
    print(text, file=sys.stderr)


def train(index: int, elements: int, wire: str, addresses: list[str]) -> None:
    """For each line of standard input make that many steps. Print the seconds of one step and the digest of the
    parameters."""
    clients = [Client(address, incarnation=FIRST_INCARNATION + index) for address in addresses]
    if wire == "digits":
        learn(index, clients)
        return
    store = ServerStore(clients, share=wire == "shared", wire=contract.BF16 if wire == "bf16" else contract.F32)
    params = Params({"w": np.zeros(elements, "f4")}, store, SGD(0.1), mapped=True)
    # The model writes its gradients here, as gloo's peer has them in the tensor that it reduces.
    gradients = params.gradients()
    gradients["w"][:] = np.random.default_rng(index).normal(scale=1e-3, size=elements)

    def step() -> None:
        params.push_pull(gradients)

    _make_steps(step, lambda: hash(params["w"].tobytes()))


def learn(index: int, clients: list[Client]) -> None:
    """Learn the digits with Adam over TCP, from batches that depend only on the trainer's index and the step."""
    environment = contract.read()
    x, y = Job(environment, Alone(environment)).load("public/digits", "train")
    start = {"w": np.zeros((x.shape[1], 10), "f4"), "b": np.zeros(10, "f4")}
    params = Params(start, ServerStore(clients, share=False), Adam(1e-3))
    order = np.random.default_rng(index)

    def step() -> None:
        rows = order.integers(0, len(y), BATCH)
        z = x[rows] @ params["w"] + params["b"]
        e = np.exp(z - z.max(1, keepdims=True))
        s = e / e.sum(1, keepdims=True)
        s[np.arange(BATCH), y[rows]] -= 1
        params.push_pull({"w": x[rows].T @ (s / BATCH), "b": s.mean(0)}, n=BATCH)

    _make_steps(step, lambda: hash(b"".join(params[name].tobytes() for name in sorted(start))))


def _make_steps(step: Callable[[], None], digest: Callable[[], int]) -> None:
    print("ready", flush=True)
    for line in sys.stdin:
        begun = time.perf_counter()
        for _ in range(int(line)):
            step()
        seconds = (time.perf_counter() - begun) / int(line)
        print(seconds, digest(), flush=True)


def main(role: str, *rest: str) -> None:
    if role == "server":
        serve(*map(int, rest))
    elif role == "keeper":
        keep(Path(rest[0]))
    else:
        index, elements, wire, *addresses = rest
        train(int(index), int(elements), wire, addresses)


if __name__ == "__main__":
    main(*sys.argv[1:])
