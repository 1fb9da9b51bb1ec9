"""A parameter server that is replaced while its trainers are one step apart."""

import threading

import numpy as np
import pytest

from runtime.contract import Member
from runtime.errors import Refused
from runtime.messages import training as messages
from runtime.parameters.declaration import Declaration, Tensor
from runtime.parameters.messages import NOTHING, Offer, Standing
from runtime.parameters.optimisers import SGD
from runtime.parameters.sharding import even_table
from runtime.protocol.client import Client
from runtime.protocol.frames import Op
from runtime.pserver.recovery import Recovered
from runtime.pserver.server import ShardServer
from runtime.pserver.shard import Shard, TrainerId
from runtime.trainer.params import Params
from runtime.trainer.servers.server_store import ServerStore
from tests.messages import pattern
from tests.waiting import until

SIZE = 600_000  # more than one block on each server
TRAINERS = (0, 1)


class LosesAnAnswer(Client):
    """Reads no answer to its second step: the server is ``gone`` before the answer arrives."""

    def __init__(self, *arguments, **options):
        super().__init__(*arguments, **options)
        self.gone = threading.Event()
        self._steps = 0

    def prepare(self, op, *arguments, **options):
        self._steps += op is Op.PUSH_PULL
        return super().prepare(op, *arguments, **options)

    @property
    def _loses(self):
        return self._steps == 2 and not self.gone.is_set()

    def exchange(self, message, *arguments):
        if not self._loses:
            return super().exchange(message, *arguments)
        self.send(message)
        return None

    def reply(self, message, *arguments):
        if self._loses and message.head.op is Op.PUSH_PULL:
            assert self.gone.wait(60)
            self.close()
        return super().reply(message, *arguments)


def gradients(trainer, step):
    rng = np.random.default_rng((trainer, step))
    return {"w": rng.normal(size=SIZE).astype("f4"), "b": rng.normal(size=3)}


def train(store, trainer, mapped):
    arrays = {"w": np.zeros(SIZE, "f4"), "b": np.zeros(3, "f8")}
    params = Params(arrays, store, SGD(0.5), mapped=mapped)
    for step in range(4):
        params.push_pull(gradients(trainer, step))
    params.leave()
    return b"".join(array.tobytes() for array in params.values())


def replace(attempt, number, stores):
    """Kill a server, start another in its place, and send its address to the trainers."""
    attempt.running[number].close()
    successor = ShardServer(Shard(number, even_table(len(attempt.running)), len(TRAINERS)))
    successor.shard.election.begin_recovery(NOTHING)
    attempt.running[number] = successor
    attempt.members(*TRAINERS)
    successor.start()
    for store in stores:
        store.redirect(number, successor.address, 0)


@pytest.mark.parametrize(("share", "mapped"), [(False, False), (True, False), (True, True)])
def test_a_server_killed_between_two_answers_of_a_version_restores_that_version(servers, together, share, mapped):
    undisturbed, attempt = servers(2, trainers=2), servers(2, trainers=2)
    expected, _same = together(lambda index: train(undisturbed.store(index), index, False), 2)
    late = LosesAnAnswer(attempt.running[1].address, incarnation=100)
    clients = [
        [Client(attempt.running[0].address, incarnation=100), late],
        [Client(server.address, incarnation=101) for server in attempt.running],
    ]
    stores = [ServerStore(some, share) for some in clients]

    def run(index):
        if index in TRAINERS:
            return train(stores[index], index, mapped)
        # Trainer 1 has version 2 of both servers and has sent its next step; trainer 0 has no answer of server 1.
        until("the next step of trainer 1 waits", lambda: attempt.running[0].shard.version == 2 and is_waiting(attempt))
        replace(attempt, 1, stores)
        late.gone.set()
        return expected

    assert together(run, 3) == [expected] * 3


def is_waiting(attempt):
    return list(attempt.running[0].shard.queue.waiting) == [1]


def test_a_server_reports_that_it_is_behind_a_trainer_although_it_had_come_back():
    reports = []
    shard = Shard(0, even_table(1), 1)
    server = ShardServer(shard, on_values=reports.append, on_lost=reports.append)
    server.change_members([Member("trainer", 0, 100)])
    declaration, trainer = Declaration((Tensor("w", (3,), "<f4"),), SGD(0.5), "sync"), TrainerId(0, 100)
    shard.election.begin_recovery(NOTHING)
    server.ask(lambda ticket: shard.declare(ticket, trainer, declaration, 0.0, Offer(held=1, seen=1)))
    server.ask(lambda ticket: shard.reseed(ticket, trainer, 1, [np.zeros(3, "f4")], Standing()))
    with pytest.raises(Refused, match=pattern(messages.PSERVER_BEHIND_TRAINER, version=1, trainer="trainer-0", seen=2)):
        server.ask(lambda ticket: shard.declare(ticket, trainer, declaration, 0.0, Offer(held=2, seen=2)))
    assert reports == [Recovered(version=1, giver=0, stored=NOTHING), shard.election.lost]
