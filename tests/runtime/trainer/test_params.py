import numpy as np
import pytest

from runtime.errors import UsageError
from runtime.messages import training as messages
from runtime.parameters.optimisers import SGD, Momentum
from runtime.trainer.local_store import LocalStore
from runtime.trainer.params import Params
from tests.messages import pattern as pattern_of


def start(store, optimiser=None, mode="sync", size=300_000):
    arrays = {"w": np.linspace(-1, 1, size, dtype="f4").reshape(-1, 2), "b": np.zeros(3, "f8")}
    return Params(arrays, store, optimiser or Momentum(0.1, 0.9), mode)


def gradients(trainer, step, params):
    rng = np.random.default_rng((trainer, step))
    return {name: rng.normal(size=array.shape).astype(array.dtype) for name, array in params.items()}


def train(store, trainer, steps=5, **options):
    params = start(store, **options)
    for step in range(steps):
        params.push_pull(gradients(trainer, step, params), n=10 + trainer)
    params.leave()
    return params


def bits(params):
    return b"".join(array.tobytes() for array in params.values())


@pytest.mark.parametrize("number", [1, 2, 3])
def test_two_trainers_get_bit_equal_parameters_on_every_run(servers, together, number):
    runs = []
    for _ in range(2):
        attempt = servers(number, trainers=2)
        runs += [bits(params) for params in together(lambda index, a=attempt: train(a.store(index), index), 2)]
    assert len(set(runs)) == 1


def test_one_trainer_gets_the_same_bits_as_alone(servers):
    alone = train(LocalStore(), 0)
    attempt = servers(2, trainers=1)
    assert bits(train(attempt.store(0), 0)) == bits(alone)


def test_two_trainers_apply_the_weighted_mean(servers, together):
    attempt = servers(1, trainers=2)

    def run(index):
        params = Params({"w": np.zeros(1, "f4")}, attempt.store(index), SGD(1.0))
        params.push_pull({"w": np.array([[1.0], [4.0]][index], "f4")}, n=[10, 30][index])
        params.leave()
        return params["w"].tolist()

    assert together(run, 2) == [[-3.25], [-3.25]]


def test_asynchronous_trainers_do_not_wait_for_each_other(servers):
    attempt = servers(1, trainers=2)
    assert train(attempt.store(0), 0, mode="async").version == 5


@pytest.mark.parametrize("mode", ["async", "m_of_n(2)", "m_of_n(1)", "ssp(2)", "ssp(0)"])
def test_one_trainer_gets_the_bits_of_synchronous_training_in_every_mode_of_gradients(servers, mode):
    alone = train(LocalStore(), 0)
    assert bits(train(servers(2, trainers=1).store(0), 0, mode=mode)) == bits(alone)


@pytest.mark.parametrize("steps", [6, 7])
def test_one_trainer_gets_the_same_bits_as_alone_in_rounds(servers, steps):
    alone = train(LocalStore(), 0, steps=steps, mode="outer(3)")
    assert bits(train(servers(2, trainers=1).store(0), 0, steps=steps, mode="outer(3)")) == bits(alone)


def test_two_trainers_in_rounds_have_the_same_parameters_after_each(servers, together):
    attempt = servers(2, trainers=2)
    first, second = together(lambda index: train(attempt.store(index), index, steps=7, mode="outer(3)"), 2)
    assert bits(first) == bits(second)
    assert first.version == 9


def test_a_round_counts_what_its_steps_changed(servers, together):
    attempt = servers(1, trainers=2)

    def run(index):
        params = Params({"w": np.zeros(1, "f4")}, attempt.store(index), SGD(1.0), "outer(2)")
        for _ in range(2):
            params.push_pull({"w": np.array([[1.0], [4.0]][index], "f4")}, n=[10, 30][index])
        params.leave()
        return float(params["w"][0])

    assert together(run, 2) == pytest.approx([-0.7 * 2 * 3.25 * 1.9] * 2)


def test_a_trainer_within_the_bound_runs_ahead_and_then_waits(servers, together):
    attempt = servers(2, trainers=2)
    order = []

    def run(index):
        params = start(attempt.store(index), mode="ssp(1)")
        params.begin_pass(0)
        attempt.meet.wait(60)
        for step in range(4):
            if index == 1 and step == 0:
                attempt.ahead.wait(60)
            params.push_pull(gradients(index, step, params))
            order.append((index, step))
            if (index, step) == (0, 0):
                attempt.ahead.set()
        params.leave()
        return params.version

    together(run, 2)
    for place, (index, step) in enumerate(order):
        others = [past for other, past in order[:place] if other != index]
        # The answer of the slower trainer's step may be recorded a moment after the faster one was released.
        assert step - (max(others, default=-1) + 1) <= 2


@pytest.mark.parametrize("server", [False, True])
def test_what_is_no_number_can_be_left_out(servers, server, caplog):
    store = servers().store(0) if server else LocalStore()
    params = Params({"w": np.zeros(2, "f4")}, store, SGD(1.0), nonfinite="reject")
    params.push_pull({"w": np.array([1, np.nan], "f4")})
    params.push_pull({"w": np.array([2, 3], "f4")})
    assert params["w"].tolist() == [-2, -3]
    assert "'w' held NaN or infinity after version 0; left out" in caplog.text


def test_what_is_no_number_can_be_zero(caplog):
    params = Params({"w": np.zeros(2, "f4")}, LocalStore(), SGD(1.0), nonfinite="zero")
    params.push_pull({"w": np.array([1, np.inf], "f4")})
    assert params["w"].tolist() == [-1, 0]
    assert "zeroed" in caplog.text


def test_an_unknown_way_with_what_is_no_number_is_refused():
    with pytest.raises(UsageError, match="raise, reject, zero"):
        Params({"w": np.zeros(2, "f4")}, LocalStore(), SGD(), nonfinite="hope")


def test_a_trainer_that_leaves_a_step_out_holds_nobody_up(servers, together):
    attempt = servers(1, trainers=2)

    def run(index):
        params = Params({"w": np.zeros(1, "f4")}, attempt.store(index), SGD(1.0), nonfinite="reject")
        params.push_pull({"w": np.array([[np.nan], [4.0]][index], "f4")}, n=10)
        params.leave()
        return params["w"].tolist()

    assert together(run, 2) == [[-4.0], [-4.0]]


def test_a_trainer_goes_on_when_another_one_is_lost(servers, together):
    attempt = servers(1, trainers=2)

    def run(index):
        params = start(attempt.store(index))
        params.push_pull(gradients(index, 0, params))
        if index == 1:
            attempt.members(0)
            return 0
        return params.push_pull(gradients(index, 1, params))

    assert together(run, 2)[0] == 2


def test_pulls_write_into_the_arrays_that_were_given(servers):
    array = np.zeros(4, "f4")
    params = Params({"w": array}, servers().store(0), SGD(1.0))
    params.push({"w": np.ones(4, "f4")})
    assert array.tolist() == [0] * 4
    params.pull()
    assert array.tolist() == [-1] * 4
    assert params["w"] is array


@pytest.mark.parametrize("server", [False, True])
def test_the_version_counts_the_updates(servers, server):
    params = train(servers().store(0) if server else LocalStore(), 0)
    assert params.version == 5


def test_the_second_trainer_gets_the_first_ones_values(servers, together):
    attempt = servers(1, trainers=2)
    values = together(
        lambda index: Params({"w": np.full(2, float(index), "f4")}, attempt.store(index), SGD())["w"].tolist(), 2
    )
    assert values == [[0.0, 0.0], [0.0, 0.0]]


def test_trainers_that_disagree_get_the_difference_in_a_message(servers):
    attempt = servers(1, trainers=2)
    Params({"w": np.zeros(2, "f4")}, attempt.store(0), SGD(0.1))
    with pytest.raises(UsageError, match=pattern_of(messages.OPTIMISERS_DIFFER)):
        Params({"w": np.zeros(2, "f4")}, attempt.store(1), SGD(0.2))


WRONG = [
    ({"v": np.zeros(2, "f4")}, 1, pattern_of(messages.PARAMETER_UNKNOWN)),
    ({}, 1, pattern_of(messages.GRADIENT_MISSING, name="'w'")),
    ({"w": np.zeros(3, "f4")}, 1, pattern_of(messages.GRADIENT_SHAPE_WRONG, name="'w'", shape="(3,)")),
    ({"w": np.zeros(2, "f8")}, 1, pattern_of(messages.GRADIENT_TYPE_WRONG)),
    ({"w": [0.0, 0.0]}, 1, pattern_of(messages.GRADIENT_NOT_AN_ARRAY, type="list")),
    ({"w": np.array([0, np.nan], "f4")}, 1, pattern_of(messages.GRADIENT_NOT_FINITE)),
    ({"w": np.zeros(2, "f4")}, 0, pattern_of(messages.PUSH_SAMPLES_INVALID)),
    (None, 1, pattern_of(messages.GRADIENTS_NOT_A_DICT)),
]


@pytest.mark.parametrize(("grads", "samples", "pattern"), WRONG)
def test_gradients_that_do_not_fit_are_refused_with_a_message(grads, samples, pattern):
    params = Params({"w": np.zeros(2, "f4")}, LocalStore(), SGD())
    with pytest.raises(UsageError, match=pattern):
        params.push_pull(grads, n=samples)


def test_a_huge_but_finite_gradient_is_taken():
    params = Params({"w": np.zeros(2, "f4")}, LocalStore(), SGD(1.0))
    params.push_pull({"w": np.full(2, 1e30, "f4")})
    assert params["w"][0] == np.float32(-1e30)


@pytest.mark.parametrize(
    ("arrays", "pattern"),
    [
        ({}, pattern_of(messages.PARAMETERS_NOT_A_DICT)),
        ({"w": np.zeros(2, int)}, pattern_of(messages.PARAMETER_TYPE_INVALID)),
        ({"w": 1.0}, pattern_of(messages.PARAMETER_TYPE_INVALID, type="float")),
        ({1: 2}, pattern_of(messages.PARAMETER_NAME_INVALID)),
    ],
)
def test_parameters_that_cannot_be_are_refused_with_a_message(arrays, pattern):
    with pytest.raises(UsageError, match=pattern):
        Params(arrays, LocalStore(), SGD())
