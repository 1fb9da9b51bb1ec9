import threading

import numpy as np
import pytest

from runtime.errors import UsageError
from runtime.messages import training as messages
from runtime.parameters.optimisers import SGD, Momentum
from runtime.trainer.local_store import LocalStore
from runtime.trainer.params import Params
from tests.messages import pattern


def gradients(trainer, step):
    rng = np.random.default_rng((trainer, step))
    return {"w": rng.normal(size=300_000).astype("f4"), "b": rng.normal(size=3)}


def train(store, trainer, overlapped):
    params = Params({"w": np.ones(300_000, "f4"), "b": np.zeros(3, "f8")}, store, Momentum(0.1, 0.9))
    for step in range(5):
        made = gradients(trainer, step)
        if overlapped:
            pending = params.push_async(made, n=10 + trainer)
            gradients(trainer, step + 1)  # work of this thread meanwhile
            assert pending.result() == step + 1
        else:
            params.push_pull(made, n=10 + trainer)
    params.leave()
    return b"".join(array.tobytes() for array in params.values())


def test_an_overlapped_push_gives_the_bits_of_the_plain_one_in_sync_mode(servers, together):
    runs = []
    for overlapped in (False, True):
        attempt = servers(2, trainers=2)
        runs += together(lambda index, a=attempt, o=overlapped: train(a.store(index), index, o), 2)
    assert len(set(runs)) == 1


def test_an_overlapped_push_does_not_hold_its_caller_up(servers, together):
    attempt = servers(1, trainers=2)

    def run(trainer):
        params = Params({"w": np.zeros(2, "f4")}, attempt.store(trainer), SGD(1.0))
        params.begin_pass(0)
        if trainer == 1:
            gate.wait(60)
        pending = params.push_async({"w": np.ones(2, "f4")})
        if trainer == 0:
            assert not pending.done(), "the other one has not pushed"
            gate.set()
        version = pending.result()
        params.leave()
        return version

    gate = threading.Event()
    assert together(run, 2) == [1, 1]


def test_the_next_call_waits_for_a_push_that_was_begun():
    params = Params({"w": np.zeros(2, "f4")}, LocalStore(), SGD(1.0))
    params.push_async({"w": np.ones(2, "f4")})
    assert params.push_pull({"w": np.ones(2, "f4")}) == 2
    assert params["w"].tolist() == [-2.0, -2.0]


def test_what_cannot_be_pushed_is_refused_at_once():
    params = Params({"w": np.zeros(2, "f4")}, LocalStore(), SGD(1.0))
    with pytest.raises(UsageError, match=pattern(messages.GRADIENT_NOT_FINITE)):
        params.push_async({"w": np.array([np.nan, 0], "f4")})
    assert params.version == 0
