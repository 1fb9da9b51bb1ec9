import threading

import pytest

from runtime.contract import Member
from runtime.parameters.sharding import even_table
from runtime.protocol.client import Client
from runtime.pserver.server import ShardServer
from runtime.pserver.shard import Shard
from runtime.trainer.servers.server_store import ServerStore


class Servers:
    """Parameter servers on real sockets, with all trainers as members."""

    def __init__(self, servers, trainers):
        self.running = [ShardServer(Shard(index, even_table(servers), trainers)) for index in range(servers)]
        for server in self.running:
            server.start()
        self.meet, self.ahead = threading.Barrier(trainers), threading.Event()
        self.members(*range(trainers))

    def members(self, *trainers):
        for server in self.running:
            server.change_members([Member("trainer", index, 100 + index) for index in trainers])

    def store(self, trainer):
        return ServerStore([Client(server.address, incarnation=100 + trainer) for server in self.running])

    def close(self):
        for server in self.running:
            server.close()


@pytest.fixture
def servers():
    started = []

    def start(servers=1, trainers=1):
        started.append(Servers(servers, trainers))
        return started[-1]

    yield start
    for server in started:
        server.close()


@pytest.fixture
def together():
    """Run one function per trainer, each in a thread; return their results, raise their errors."""

    def run(function, trainers):
        results, errors = {}, []

        def one(index):
            try:
                results[index] = function(index)
            except BaseException as error:  # noqa: BLE001  it is raised again below
                errors.append(error)

        threads = [threading.Thread(target=one, args=(index,), daemon=True) for index in range(trainers)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(30)
        if errors:
            raise errors[0]
        assert len(results) == trainers, "a trainer waits for ever"
        return [results[index] for index in range(trainers)]

    return run
