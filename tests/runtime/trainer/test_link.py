import errno
import logging
import os

import numpy as np
import pytest

from runtime.errors import Lost, UsageError
from runtime.protocol.client import Client
from runtime.pserver.optimisers import SGD
from runtime.trainer.params import Params, ServerStore


def start(attempt, trainer=0, share=True):
    clients = [CountsBlocks(server.address, incarnation=100 + trainer) for server in attempt.running]
    params = Params({"w": np.zeros(600_000, "f4"), "b": np.zeros(3, "f8")}, ServerStore(clients, share), SGD(0.5))
    return params, clients


class CountsBlocks(Client):
    """Knows how many blocks of numbers went over its socket."""

    blocks = 0

    def prepare(self, op, body=None, blocks=(), version=0):
        self.blocks += len(blocks)
        return super().prepare(op, body, blocks, version)


def gradients(step):
    rng = np.random.default_rng(step)
    return {"w": rng.normal(size=600_000).astype("f4"), "b": rng.normal(size=3)}


def train(attempt, share):
    params, _clients = start(attempt, share=share)
    for step in range(3):
        params.push_pull(gradients(step))
    params.leave()
    return b"".join(array.tobytes() for array in params.values())


def test_shared_memory_and_socket_give_the_same_bits(servers):
    assert train(servers(2), share=True) == train(servers(2), share=False)


def test_trainers_with_and_without_shared_memory_train_together(servers, together):
    attempt = servers(2, trainers=2)

    def run(trainer):
        params, _clients = start(attempt, trainer, share=trainer == 0)
        for step in range(3):
            params.push_pull(gradients(10 * trainer + step))
        params.leave()
        return params["w"].tobytes()

    assert len(set(together(run, 2))) == 1


@pytest.mark.parametrize("share", [True, False])
def test_a_broken_connection_costs_no_step_and_doubles_none(servers, share):
    params, clients = start(servers(1), share=share)
    for step in range(4):
        if step == 2:
            clients[0].close()
        params.push_pull(gradients(step))
    expected = np.zeros(600_000, "f4")
    for step in range(4):
        expected -= np.float32(0.5) * gradients(step)["w"]
    assert params.version == 4
    assert params["w"].tobytes() == expected.tobytes()


def test_gradients_as_bfloat16_are_rounded_once_and_nothing_is_lost_for_good(servers):
    clients = [Client(server.address, incarnation=100) for server in servers(2).running]
    store = ServerStore(clients, share=False, wire="bf16")
    params = Params({"w": np.zeros(600_000, "f4"), "b": np.zeros(3, "f8")}, store, SGD(1.0))
    params.push_pull({"w": np.full(600_000, 1.001, "f4"), "b": np.full(3, 1.001)})
    assert set(params["w"].tolist()) == {-1.0}, "1.001 is 1.0 in bfloat16"
    assert params["b"].tolist() == [-1.001] * 3, "float64 travels as it is"
    for _ in range(99):
        params.push_pull({"w": np.full(600_000, 1.001, "f4"), "b": np.zeros(3)})
    assert np.abs(params["w"] + 100.1).max() < 0.02


def test_a_server_that_nobody_replaces_is_not_waited_for_for_ever(servers):
    attempt = servers(1)
    clients = [Client(server.address, incarnation=100, deadline=0.1) for server in attempt.running]
    params = Params({"w": np.zeros(3, "f4")}, ServerStore(clients, patience=0.2), SGD(0.5))
    attempt.close()
    with pytest.raises(Lost, match=r"No process has taken its place for 0.2 s\.$"):
        params.push_pull({"w": np.ones(3, "f4")})


def test_on_one_host_no_number_of_a_step_goes_over_the_socket(servers):
    params, clients = start(servers(2))
    before = [client.blocks for client in clients]
    params.push_pull(gradients(0))
    assert [client.blocks for client in clients] == before


def test_memory_is_shared_anew_after_a_broken_connection(servers):
    params, (client,) = start(servers(1))
    client.close()
    params.push_pull(gradients(0))
    before = client.blocks
    params.push_pull(gradients(1))
    assert client.blocks == before


def test_values_that_are_being_changed_are_asked_for_instead(servers):
    attempt = servers(1)
    params, _clients = start(attempt)
    params.push_pull(gradients(0))
    whole = params["w"].copy()
    clock, *_parameters = attempt.running[0].parameters().arrays
    clock[0] += 1
    params["w"][:] = 0
    params.pull()
    assert params["w"].tobytes() == whole.tobytes()
    assert params.version == 1


def test_what_a_trainer_wrote_before_it_was_lost_counts_for_nothing(servers):
    attempt = servers(1, trainers=2)
    params, _clients = start(attempt)
    lost, _clients = start(attempt, trainer=1)
    lost.gradients()["w"][:] = np.nan
    attempt.members(0)
    params.push_pull(gradients(0))
    assert params["w"].tobytes() == (np.float32(-0.5) * gradients(0)["w"]).tobytes()


def test_without_memory_to_share_the_numbers_go_over_the_socket(servers, monkeypatch, caplog):
    def has_no_memory(name, flags):
        raise OSError(errno.ENOMEM, os.strerror(errno.ENOMEM))

    monkeypatch.setattr(os, "memfd_create", has_no_memory)
    caplog.set_level(logging.INFO, "regatta")
    params, _clients = start(servers(2))
    params.push_pull(gradients(0))
    assert params["w"].tobytes() == (np.float32(-0.5) * gradients(0)["w"]).tobytes()
    assert "(Cannot allocate memory); numbers go over their sockets" in caplog.text


@pytest.mark.parametrize("share", [True, False])
def test_gradients_in_the_memory_of_the_job_count_like_any_others(servers, share):
    params, _clients = start(servers(2), share=share)
    room = params.gradients()
    for step in range(2):
        for name, values in gradients(step).items():
            room[name][:] = values
        params.push_pull(room)
    expected = np.float32(-0.5) * gradients(0)["w"] - np.float32(0.5) * gradients(1)["w"]
    assert params["w"].tobytes() == expected.tobytes()


def test_what_is_no_number_is_found_in_the_memory_of_the_job(servers):
    params, _clients = start(servers(1))
    room = params.gradients()
    room["w"][-1] = np.inf
    with pytest.raises(UsageError, match="'w' holds NaN or infinity"):
        params.push_pull(room)
    assert params.version == 0
