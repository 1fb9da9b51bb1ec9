"""One process of ours in R1, R2, R5 and R10.

``server INDEX SERVERS TRAINERS``, or ``trainer INDEX ELEMENTS WIRE WORK ADDRESSES`` where WIRE is ``shared`` or
``socket`` and WORK the number of matrix products that stand for the model's own work in a step.
"""

from __future__ import annotations

import sys
import time

import numpy as np

from runtime.contract import TRAINER, Member
from runtime.protocol.client import Client
from runtime.pserver.optimisers import SGD
from runtime.pserver.server import ShardServer
from runtime.pserver.shard import Shard
from runtime.pserver.slots import even_table
from runtime.trainer.params import Params, ServerStore

FIRST_INCARNATION = 100
SIDE = 384  # of the matrices


def serve(index: int, servers: int, trainers: int) -> None:
    """Print the address, serve until standard input ends."""
    server = ShardServer(Shard(index, even_table(servers), trainers))
    server.change_members(Member(TRAINER, number, FIRST_INCARNATION + number) for number in range(trainers))
    server.start()
    print(server.address, flush=True)
    sys.stdin.read()
    server.close()


def train(index: int, elements: int, wire: str, work: int, addresses: list[str]) -> None:
    """For each line of standard input make so many steps; print the seconds of one and the digest of the parameters."""
    clients = [Client(address, incarnation=FIRST_INCARNATION + index) for address in addresses]
    params = Params({"w": np.zeros(elements, "f4")}, ServerStore(clients, share=wire == "shared"), SGD(0.1))
    gradients = {"w": np.random.default_rng(index).normal(scale=1e-3, size=elements).astype("f4")}
    matrix = np.full((SIDE, SIDE), 1e-3, "f4")
    print("ready", flush=True)
    for line in sys.stdin:
        begun = time.perf_counter()
        for _ in range(int(line)):
            for _ in range(work):
                matrix @ matrix
            params.push_pull(gradients)
        seconds = (time.perf_counter() - begun) / int(line)
        print(seconds, hash(params["w"].tobytes()), flush=True)


def main(role: str, index: int, first: int, *rest: str) -> None:
    if role == "server":
        serve(index, first, int(rest[0]))
    else:
        train(index, first, rest[0], int(rest[1]), list(rest[2:]))


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), *sys.argv[4:])
