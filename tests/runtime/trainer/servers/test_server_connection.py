import errno
import logging
import os
import socket
import threading

import numpy as np
import pytest

from bench.runtime.proxy import DOWN, Proxy
from runtime.errors import Lost, UsageError
from runtime.messages import training as messages
from runtime.parameters.array_blocks import block
from runtime.parameters.journal_layout import CLOCK
from runtime.parameters.optimisers import SGD, Adam
from runtime.parameters.sharding import BLOCK_BYTES
from runtime.protocol.client import Client
from runtime.protocol.connection import Connection, write_batches
from runtime.protocol.frames import Op
from runtime.trainer.params import Params
from runtime.trainer.servers.server_store import ServerStore
from tests.messages import pattern


def start(attempt, trainer=0, share=True):
    clients = [CountsBlocks(server.address, incarnation=100 + trainer) for server in attempt.running]
    params = Params({"w": np.zeros(600_000, "f4"), "b": np.zeros(3, "f8")}, ServerStore(clients, share), SGD(0.5))
    return params, clients


class CountsBlocks(Client):
    """Counts the blocks of numbers sent over its socket."""

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


@pytest.mark.parametrize("share", [True, False])
@pytest.mark.parametrize("wire", ["f32", "bf16"])
def test_gradients_that_are_sent_ahead_give_the_same_bits(servers, share, wire):
    def train(ahead):
        clients = [CountsBlocks(server.address, incarnation=100) for server in servers(2).running]
        store = ServerStore(clients, share, wire)
        params = Params({"w": np.zeros(600_000, "f4"), "b": np.zeros(3, "f8")}, store, SGD(0.5))
        for step in range(3):
            pushed = gradients(step)
            for name in reversed(pushed) if ahead else ():
                params.stage(name, np.full_like(pushed[name], 7.0))  # which is replaced
                params.stage(name, pushed[name])
            params.push_pull(pushed)
        params.leave()
        return b"".join(array.tobytes() for array in params.values()), sum(client.blocks for client in clients)

    (bits, with_pushes), (expected, usual) = train(ahead=True), train(ahead=False)
    assert bits == expected
    assert share or with_pushes < usual, "they travel once"


@pytest.mark.invariant("Gradients that are sent ahead of their push count once, together with the push.")
@pytest.mark.parametrize("wire", ["f32", "bf16"])
def test_what_was_sent_ahead_over_a_connection_that_broke_is_sent_again_and_counts_once(servers, wire):
    client = Client(servers(1).running[0].address, incarnation=100)
    params = Params({"w": np.zeros(600_000, "f4")}, ServerStore([client], share=False, wire=wire), SGD(1.0))
    pushed = {"w": np.ones(600_000, "f4")}
    params.push_pull(pushed)
    params.stage("w", pushed["w"])
    params._take_staged()  # it is sent
    client.close()
    assert params.push_pull(pushed) == 2
    assert set(params["w"].tolist()) == {-2.0}


def test_another_array_than_was_sent_ahead_counts(servers):
    client = Client(servers(1).running[0].address, incarnation=100)
    params = Params({"w": np.zeros(3, "f4"), "b": np.zeros(3, "f4")}, ServerStore([client], share=False), SGD(1.0))
    early = {name: np.full(3, 9.0, "f4") for name in params}
    for name, gradient in early.items():
        params.stage(name, gradient)
    params.push_pull({"w": np.ones(3, "f4"), "b": early["b"]})
    assert (params["w"].tolist(), params["b"].tolist()) == ([-1.0] * 3, [-9.0] * 3)


def test_a_step_that_is_left_out_owes_nothing_of_what_was_sent_ahead(servers):
    def train(left_out):
        client = Client(servers(1).running[0].address, incarnation=100)
        store = ServerStore([client], share=False, wire="bf16")
        params = Params({"w": np.zeros(3, "f4"), "b": np.zeros(3, "f4")}, store, SGD(1.0), nonfinite="reject")
        for name, gradient in left_out.items():
            params.stage(name, gradient)
        if left_out:
            params.push_pull(left_out)
        for _ in range(7):
            params.push_pull({"w": np.full(3, 1.001, "f4"), "b": np.zeros(3, "f4")})
        return params["w"].tolist()

    assert train({"w": np.full(3, 1.003, "f4"), "b": np.full(3, np.nan, "f4")}) == train({})


class SendsACopyTooLate(Client):
    """Once a push is ``taken``, a copy of it arrives that an earlier connection had delayed."""

    def __init__(self, *arguments, taken, **options):
        super().__init__(*arguments, **options)
        self.taken, self.copied = taken, threading.Event()

    def exchange(self, message, *arguments):
        if message.head.op is Op.PUSH_PULL and not self.copied.is_set():
            threading.Thread(target=self.send_a_copy, args=[self._addressed(message)], daemon=True).start()
        return super().exchange(message, *arguments)

    def send_a_copy(self, message):
        assert self.taken.acquire(timeout=10)
        host, _, port = self._address.rpartition(":")
        earlier = Connection(socket.create_connection((host, int(port))))
        earlier.send(message, 10)
        assert self.taken.acquire(timeout=10)
        earlier.close()
        self.copied.set()


def test_a_step_that_a_late_copy_of_itself_overtakes_is_asked_for_again_and_counts_once(servers, together, monkeypatch):
    (server,) = servers(1, trainers=2).running
    taken, push = threading.Semaphore(0), server.shard.push
    monkeypatch.setattr(server.shard, "push", lambda *step: [push(*step), taken.release()][0])
    overtaken = SendsACopyTooLate(server.address, incarnation=100, taken=taken)

    def train(trainer):
        client = overtaken if trainer == 0 else Client(server.address, incarnation=101)
        params = Params({"w": np.zeros(3, "f4")}, ServerStore([client], share=False), SGD(1.0))
        params.begin_pass(0)
        if trainer == 1:
            assert overtaken.copied.wait(60)
        params.push_pull({"w": np.full(3, 1 + 2 * trainer, "f4")})
        params.leave()
        return params.version, params["w"].tolist()

    assert together(train, 2) == [(1, [-2.0] * 3)] * 2


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
    with pytest.raises(Lost, match=pattern(messages.NOT_REPLACED_IN_TIME)):
        params.push_pull({"w": np.ones(3, "f4")})


def test_on_one_host_no_number_of_a_step_goes_over_the_socket(servers):
    params, clients = start(servers(2))
    before = [client.blocks for client in clients]
    params.push_pull(gradients(0))
    assert [client.blocks for client in clients] == before


def test_memory_is_shared_again_after_a_broken_connection(servers):
    params, (client,) = start(servers(1))
    client.close()
    params.push_pull(gradients(0))
    before = client.blocks
    params.push_pull(gradients(1))
    assert client.blocks == before


@pytest.mark.invariant("A trainer never uses values that the pserver is changing.")
def test_values_that_are_being_changed_are_asked_for_instead(servers):
    attempt = servers(1)
    params, _clients = start(attempt)
    params.push_pull(gradients(0))
    whole = params["w"].copy()
    marks, *_parameters = attempt.running[0].parameters().arrays
    marks[CLOCK] += 1
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
    buffers = params.gradients()
    for step in range(2):
        for name, values in gradients(step).items():
            buffers[name][:] = values
        params.push_pull(buffers)
    expected = np.float32(-0.5) * gradients(0)["w"] - np.float32(0.5) * gradients(1)["w"]
    assert params["w"].tobytes() == expected.tobytes()


def test_what_is_no_number_is_found_in_the_memory_of_the_job(servers):
    params, _clients = start(servers(1))
    buffers = params.gradients()
    buffers["w"][-1] = np.inf
    with pytest.raises(UsageError, match=pattern(messages.LOWER_LEARNING_RATE)):
        params.push_pull(buffers)
    assert params.version == 0


class FarClient(Client):
    """Treats its server as one on another host."""

    local = False


def far(attempt, trainer=0, rule=SGD(1.0), wire="f32"):  # noqa: B008  it never changes
    clients = [FarClient(server.address, incarnation=100 + trainer) for server in attempt.running]
    store = ServerStore(clients, share=False, wire=wire)
    params = Params({"w": np.zeros(600_000, "f4"), "b": np.zeros(3, "f8")}, store, rule)
    return params, clients


@pytest.mark.parametrize("rule", [SGD(0.5), Adam(0.1)])
def test_values_that_come_while_gradients_leave_are_those_of_whole_steps(servers, together, rule):
    attempts = servers(2, trainers=2), servers(2, trainers=2)

    def run(trainer):
        far_params, _clients = far(attempts[0], trainer, rule=rule)
        near = Params(
            {"w": np.zeros(600_000, "f4"), "b": np.zeros(3, "f8")},
            ServerStore([Client(s.address, incarnation=100 + trainer) for s in attempts[1].running]),
            rule,
        )
        for step in range(3):
            for params in (far_params, near):
                params.push_pull(gradients(10 * trainer + step), n=1 + trainer)
            assert far_params["w"].tobytes() == near["w"].tobytes()
        return far_params["w"].tobytes()

    assert len(set(together(run, 2))) == 1


def test_blocks_made_with_a_trainer_that_is_lost_do_not_count(servers, together):
    attempt = servers(1, trainers=2)
    server = attempt.running[0]
    began = threading.Barrier(2)

    def stay():
        params, _clients = far(attempt)
        params.begin_pass(0)
        began.wait(60)
        params.push_pull(gradients(1))
        return params["w"].tobytes(), params.version

    def die():
        params, (client,) = far(attempt, 1)
        params.begin_pass(0)
        began.wait(60)
        step = [array.reshape(-1) for array in gradients(2).values()]
        blocks = [block(place, place.of(step)) for place in server.shard.state.places]
        message = client.prepare(Op.PUSH_PULL, {"samples": 1}, blocks)
        with socket.create_connection(("127.0.0.1", int(server.address.partition(":")[2]))) as link:
            for part in next(write_batches(message)):  # the head and a block
                link.sendall(part)
            with server.changed:
                assert server.changed.wait_for(lambda: server.shard.arriving.drafted > 0, 60)
            attempt.members(0)

    (values, version), _killed = together(lambda trainer: (stay, die)[trainer](), 2)
    assert version == 1
    assert values == (-gradients(1)["w"]).tobytes()


def test_a_reply_that_breaks_off_after_blocks_ahead_of_it_leaves_the_values_before(servers):
    """They do not count before the reply has arrived: it is requested again, and the step is in the version once."""
    attempt = servers(1)
    proxy = Proxy(attempt.running[0].address)
    client = FarClient(proxy.address, incarnation=100)
    params = Params({"w": np.zeros(2_000_000, "f4")}, ServerStore([client], share=False), SGD(1.0))
    step = np.random.default_rng(1).normal(size=2_000_000).astype("f4")
    params.push_pull({"w": step})
    proxy.edge.flip(DOWN, after=3 * BLOCK_BYTES)
    params.push_pull({"w": step})
    proxy.close()
    assert proxy.edge.flipped == 1
    assert params.version == 2
    assert params["w"].tobytes() == (np.float32(0) - step - step).tobytes()


class RecordsTypes(FarClient):
    """Records the types of the blocks of a reply."""

    came = frozenset()

    def exchange(self, message, allocate, *callbacks):
        def seen(header):
            self.came |= {header.dtype.name}
            return allocate(header)

        self.came = frozenset()
        return super().exchange(message, seen, *callbacks)


def halved(attempt, trainer, rule):
    clients = [RecordsTypes(server.address, incarnation=100 + trainer) for server in attempt.running]
    store = ServerStore(clients, share=False, wire="bf16")
    return Params({"w": np.zeros(600_000, "f4"), "b": np.zeros(3, "f8")}, store, rule), clients


@pytest.mark.parametrize("rule", [SGD(0.5), Adam(0.1)])
def test_parameters_that_come_back_as_bfloat16_are_the_same_in_all_trainers_and_on_the_server(servers, together, rule):
    attempt = servers(1, trainers=2)
    shard = attempt.running[0].shard
    step_over = threading.Barrier(2)

    def run(trainer):
        params, (client,) = halved(attempt, trainer, rule)
        seen = []
        for step in range(4):
            params["w"][:10] = 7.0  # the next pull overwrites what a script writes into them
            if step:
                client.came = frozenset()
            params.push_pull(gradients(10 * trainer + step))
            step_over.wait(60)
            seen.append((params["w"].tobytes(), params["b"].tobytes(), "BF16" in client.came))
            kept = np.concatenate([array for array in shard.state.parameters if array.dtype == "f4"])
            assert kept.tobytes() == params["w"].tobytes()
            step_over.wait(60)
        return seen

    first, second = together(run, 2)
    assert first == second
    assert [as_bf16 for _w, _b, as_bf16 in first] == [False, True, True, True], "the first one has nothing to build on"


def test_what_rounding_takes_from_an_update_goes_into_the_next(servers):
    params, _clients = halved(servers(1), 0, SGD(1 / 3))
    ones = {"w": np.ones(600_000, "f4"), "b": np.zeros(3)}
    for _ in range(30):
        params.push_pull(ones)
    assert np.abs(params["w"] + 10).max() < 2**-9, "less than one rounding of 1/3, and not thirty"
