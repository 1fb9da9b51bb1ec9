"""Parameters that a trainer reads in the memory of the server on its host."""

import threading

import numpy as np
import pytest

from runtime.contract import Member
from runtime.parameters.messages import NOTHING
from runtime.parameters.optimisers import SGD
from runtime.parameters.sharding import even_table
from runtime.protocol.client import Client
from runtime.pserver.server import ShardServer
from runtime.pserver.shard import Shard
from runtime.trainer.local_store import LocalStore
from runtime.trainer.params import Params
from runtime.trainer.servers import mapped_parameters
from runtime.trainer.servers.memory_window import Window
from runtime.trainer.servers.server_store import ServerStore

ELEMENTS = 600_000


def start(attempt, trainer=0, share=True, mode="sync"):
    clients = [Client(server.address, incarnation=100 + trainer) for server in attempt.running]
    store = ServerStore(clients, share)
    arrays = {"w": np.zeros(ELEMENTS, "f4"), "b": np.zeros(3, "f8")}
    return Params(arrays, store, SGD(0.5), mode, mapped=True), store


def gradients(step):
    rng = np.random.default_rng(step)
    return {"w": rng.normal(size=ELEMENTS).astype("f4"), "b": rng.normal(size=3)}


def after(*steps):
    expected = np.zeros(ELEMENTS, "f4")
    for step in steps:
        expected -= np.float32(0.5) * gradients(step)["w"]
    return expected.tobytes()


def test_in_a_pass_the_arrays_show_the_server_s_own_memory(servers):
    attempt = servers(1)
    params, _store = start(attempt)
    array = params["w"]
    for step in range(3):
        params.push_pull(gradients(step))
        assert array.tobytes() == after(*range(step + 1))
    attempt.running[0].shard.state.parameters[0][7] = 42
    assert array[7] == 42


@pytest.mark.parametrize("mode", ["sync", "async", "ssp(1)", "m_of_n(2)", "outer(2)"])
@pytest.mark.parametrize("share", [True, False])
def test_what_is_mapped_has_the_values_of_what_is_copied(servers, mode, share):
    def train(mapped):
        clients = [Client(server.address, incarnation=100) for server in servers(2).running]
        arrays = {"w": np.zeros(ELEMENTS, "f4"), "b": np.zeros(3, "f8")}
        params = Params(arrays, ServerStore(clients, share), SGD(0.5), mode, mapped=mapped)
        for step in range(4):
            params.push_pull(gradients(step))
        params.leave()
        return b"".join(array.tobytes() for array in params.values())

    assert train(mapped=True) == train(mapped=False)


@pytest.mark.parametrize("alone", [True, False])
def test_the_arrays_are_read_only_and_those_that_were_given_stay_as_they_are(servers, alone):
    given = np.ones(4, "f4")
    params = Params({"w": given}, LocalStore() if alone else servers().store(0), SGD(1.0), mapped=True)
    params.push_pull({"w": np.ones(4, "f4")})
    assert given.tolist() == [1] * 4
    assert params["w"].tolist() == [0] * 4
    with pytest.raises(ValueError, match="read-only"):
        params["w"][0] = 1


def test_a_trainer_waiting_for_the_end_of_a_pass_keeps_its_values(servers, together):
    attempt = servers(1, trainers=2)
    pushed, ended = threading.Barrier(2), threading.Event()

    def run(trainer):
        params, _store = start(attempt, trainer)
        params.push_pull(gradients(0))
        pushed.wait(60)
        if trainer == 0:
            params.end_pass(0)
            ended.set()
        else:
            ended.wait(60)
            for step in (1, 2):
                params.push_pull(gradients(step))
        pushed.wait(60)
        return params["w"].tobytes()

    assert together(run, 2) == [after(0), after(0, 1, 2)]


def test_a_push_alone_changes_nothing_before_the_pull(servers):
    params, _store = start(servers(1))
    params.push_pull(gradients(0))
    for step in (1, 2):
        params.push(gradients(step))
        assert params["w"].tobytes() == after(0)
    params.pull()
    assert params["w"].tobytes() == after(0, 1, 2)


def test_a_broken_connection_costs_no_step_and_doubles_none(servers):
    attempt = servers(1)
    clients = [Client(server.address, incarnation=100) for server in attempt.running]
    params = Params({"w": np.zeros(ELEMENTS, "f4")}, ServerStore(clients), SGD(0.5), mapped=True)
    for step in range(5):
        if step in (1, 3):
            clients[0].close()
        params.push_pull({"w": gradients(step)["w"]})
    assert params["w"].tobytes() == after(*range(5))
    assert params.version == 5


@pytest.mark.invariant("A pserver that is killed during an update restores the version before the update.")
def test_a_server_killed_during_an_update_restores_the_version_before(servers):
    attempt = servers(1)
    params, store = start(attempt)
    params.push_pull(gradients(0))
    dying = attempt.running[0].shard
    journal = dying.state.journal
    journal.begin()
    for number, block in enumerate(dying.state.parameters[:2]):
        journal.keep(number, block)
        block[:100] = np.nan
    back = threading.Event()
    successor = ShardServer(Shard(0, even_table(1), 1), on_values=lambda recovered: back.set())
    successor.shard.election.begin_recovery(NOTHING)
    successor.change_members([Member("trainer", 0, 100)])
    successor.start()
    store.redirect(0, successor.address, 0)
    assert back.wait(60)
    assert successor.shard.version == 1
    assert np.concatenate(successor.shard.state.parameters[:-1]).tobytes() == after(0)
    params.push_pull(gradients(1))
    assert params["w"].tobytes() == after(0, 1)
    successor.close()


def test_a_version_that_is_gone_is_not_offered(servers):
    attempt = servers(1)
    params, store = start(attempt)
    params.push_pull(gradients(0))
    journal = attempt.running[0].shard.state.journal
    journal.version += 2
    lost = threading.Event()
    successor = ShardServer(Shard(0, even_table(1), 1), on_lost=lambda why: lost.set())
    successor.shard.election.begin_recovery(NOTHING)
    successor.change_members([Member("trainer", 0, 100)])
    successor.start()
    store.redirect(0, successor.address, 0)
    assert lost.wait(60)
    successor.close()


def test_without_memory_for_a_journal_the_values_are_copied(servers, monkeypatch):
    attempt = servers(1)
    monkeypatch.setattr(ShardServer, "_journal_fits", lambda server: False)
    params, _store = start(attempt)
    params.push_pull(gradients(0))
    attempt.running[0].shard.state.parameters[0][7] = 42
    assert params["w"].tobytes() == after(0)


def test_more_parts_than_a_process_may_map_are_copied(servers, monkeypatch):
    monkeypatch.setattr(mapped_parameters, "MOST_RUNS", 0)
    attempt = servers(1)
    params, _store = start(attempt)
    params.push_pull(gradients(0))
    attempt.running[0].shard.state.parameters[0][7] = 42
    assert params["w"].tobytes() == after(0)


def test_arrays_of_no_elements_are_no_obstacle(servers):
    clients = [Client(server.address, incarnation=100) for server in servers(2).running]
    arrays = {"none": np.zeros((0, 3), "f4"), "w": np.zeros(3, "f4")}
    params = Params(arrays, ServerStore(clients), SGD(1.0), mapped=True)
    params.push_pull({"none": np.zeros((0, 3), "f4"), "w": np.ones(3, "f4")})
    assert params["w"].tolist() == [-1] * 3
    assert Window([(0, "<f4")]).arrays[0].size == 0
