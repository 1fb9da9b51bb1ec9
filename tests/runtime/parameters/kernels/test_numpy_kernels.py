"""The arithmetic of the update rules: NumPy's pieces, the plain loops, and the accelerator, all to the same bit."""

import threading

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from runtime.parameters.journal_layout import KEPT
from runtime.parameters.kernels import fused, jit, numpy_kernels, scalar_loops
from runtime.parameters.kernels.gradient_mean import Means, Weights
from runtime.parameters.kernels.numpy_kernels import PIECE_ELEMENTS
from runtime.parameters.optimisers import KINDS, SGD, Adagrad, Adam, Momentum, Nesterov
from runtime.pserver.state.undo_journal import Journal
from tests.properties import examples

RULES = [SGD(0.1), Momentum(0.1, 0.9), Nesterov(0.1, 0.9), Adagrad(0.1), Adam(0.01)]
DTYPES = ["<f4", "<f8"]


def straightforward(rule, p, g, state, rate):
    """The rules as in the textbooks, with arrays of the operands' type."""
    number = p.dtype.type
    rate = number(rate)
    if isinstance(rule, SGD):
        return p - g * rate, ()
    if isinstance(rule, Momentum | Nesterov):
        velocity = state[0] * number(rule.mu) - g * rate
        ahead = (p - g * rate) + velocity * number(rule.mu)
        return (ahead if isinstance(rule, Nesterov) else p + velocity), (velocity,)
    if isinstance(rule, Adagrad):
        squares = state[0] + g * g
        return p - g / (np.sqrt(squares) + number(rule.eps)) * rate, (squares,)
    mean = state[0] * number(rule.beta1) + g * number(1 - rule.beta1)
    square = state[1] * number(rule.beta2) + g * g * number(1 - rule.beta2)
    eps = number(rule.eps * np.sqrt(1 - rule.beta2))  # as of the first update
    return p - mean / (np.sqrt(square) + eps) * rate, (mean, square)


def numbers(dtype):
    limits = {"width": 32, "min_value": -1e3, "max_value": 1e3, "allow_subnormal": False}
    return arrays.arrays(dtype, st.integers(1, 40), elements=st.floats(**limits))


def operands(rule, parameter):
    gradient = np.roll(parameter, 1) / 7
    return [parameter.copy(), gradient.astype(parameter.dtype), *(np.zeros_like(parameter) for _ in range(rule.slots))]


def constants(rule):
    return (rule.rate(1), *rule.constants(1))


def same_bits(ones, others):
    return all(one.tobytes() == other.tobytes() for one, other in zip(ones, others, strict=True))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("rule", RULES)
def test_pieces_give_the_bits_of_whole_array_expressions(rule, dtype):
    @settings(max_examples=examples(25))
    @given(numbers(dtype), st.integers(1, 50))
    def check(parameter, piece):
        ours = operands(rule, parameter)
        p, g, *state = operands(rule, parameter)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(numpy_kernels, "PIECE_ELEMENTS", piece)
            patch.setattr(numpy_kernels, "_workspaces", threading.local())
            for _ in range(2):
                numpy_kernels.run(type(rule).__name__, ours, constants(rule))
                p, state = straightforward(rule, p, g, state, rule.rate(1))
        assert same_bits(ours, [p, g, *state])

    check()


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("rule", RULES)
def test_the_loops_give_the_bits_of_the_pieces(rule, dtype):
    @settings(max_examples=examples(25))
    @given(numbers(dtype))
    def check(parameter):
        ours, theirs = operands(rule, parameter), operands(rule, parameter)
        loop = scalar_loops.LOOPS[type(rule).__name__]
        for _ in range(2):
            numpy_kernels.run(type(rule).__name__, ours, constants(rule))
            loop(*theirs, *map(parameter.dtype.type, constants(rule)))
        assert same_bits(ours, theirs)

    check()


def test_every_rule_has_a_kernel_and_a_loop():
    assert set(numpy_kernels.KERNELS) == set(scalar_loops.LOOPS) == set(KINDS)


def test_adjacent_arrays_are_zeroed_apart_and_in_the_order_that_was_asked_for():
    made = list(numpy_kernels.adjacent([(3, "<f4"), (2, "<f8"), (0, "<f4"), (5, "<f4")]))
    assert [(array.size, array.dtype.str) for array in made] == [(3, "<f4"), (2, "<f8"), (0, "<f4"), (5, "<f4")]
    for number, array in enumerate(made):
        array += number + 1
    assert [set(array.tolist()) for array in made] == [{1.0}, {2.0}, set(), {4.0}]


def test_threads_do_not_share_scratch_memory():
    gradient = np.ones(PIECE_ELEMENTS, "f4")
    parameters = [np.zeros_like(gradient) for _ in range(4)]
    meet = threading.Barrier(4)

    def work(number):
        meet.wait(60)
        for _ in range(20):
            numpy_kernels.run("SGD", (parameters[number], gradient), (float(number),))

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert [set(parameter.tolist()) for parameter in parameters] == [{-20.0 * number} for number in range(4)]


# --- The accelerator -------------------------------------------------------------------------------------------------
@pytest.fixture
def accelerator(monkeypatch):
    """Without code that earlier tests have compiled."""
    monkeypatch.setattr(jit, "_ready", {})
    monkeypatch.setattr(jit, "_asked", set())


def wait_for_it():
    for thread in threading.enumerate():
        if thread.name == "accelerator":
            thread.join(60)


@pytest.mark.invariant("Compiled updates give the bits of NumPy's.")
@pytest.mark.accelerator
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("rule", RULES)
def test_the_accelerator_gives_the_bits_of_the_pieces(rule, dtype, accelerator):
    rng = np.random.default_rng(5)
    parameter = (rng.normal(size=100_003) * 10.0 ** rng.integers(-20, 10, 100_003)).astype(dtype)
    ours, theirs = operands(rule, parameter), operands(rule, parameter)
    name = type(rule).__name__
    loop = jit.load(name, parameter.dtype, rule.slots)
    for _ in range(3):
        numpy_kernels.run(name, ours, constants(rule))
        loop(*theirs, *map(parameter.dtype.type, constants(rule)))
    assert same_bits(ours, theirs)


TRIPS = [(SGD(0.1), 2, "<f4"), (Momentum(0.1), 3, "<f4"), (Nesterov(0.1), 1, "<f4"), (Adagrad(0.1), 5, "<f4")]


@pytest.mark.accelerator
@pytest.mark.parametrize(("rule", "count", "dtype"), [*TRIPS, (Adam(0.01), 4, "<f8")])
def test_an_update_in_one_trip_has_the_bits_of_mean_and_pieces(rule, count, dtype, accelerator):
    size, name = 10_007, type(rule).__name__
    rng = np.random.default_rng(count)
    jit._ready[name, dtype, count] = fused.load(name, np.dtype(dtype), rule.slots, count)
    values = (rng.normal(size=size) * 10.0 ** rng.integers(-20, 10, size)).astype(dtype)
    ours, theirs = operands(rule, values), operands(rule, values)
    journal = Journal(blocks=[np.zeros(7, dtype), np.zeros(size, dtype)])
    for shares in ([1 / count] * count, [(number + 1) / (count * (count + 1) / 2) for number in range(count)]):
        gradients = [rng.normal(size=size).astype(dtype) for _ in range(count)]
        weights, before = Weights(shares), ours[0].copy()
        assert fused.run(
            name, ours[0], gradients, weights, ours[2:], constants(rule), journal.blocks[1], journal.marks, 7
        )
        theirs[1] = Means().weighted(gradients, weights)
        numpy_kernels.run(name, theirs, constants(rule))
        assert same_bits([ours[0], *ours[2:]], [theirs[0], *theirs[2:]])
        assert journal.blocks[1].tobytes() == before.tobytes()
        assert journal.marks[KEPT] == 7 + size
    assert set(journal.blocks[0].tolist()) == {0.0}


@pytest.mark.accelerator
def test_the_accelerator_takes_over_large_arrays_by_itself(accelerator):
    rule = SGD(0.5)
    parameter = np.ones(jit.WORTH_ELEMENTS, "f4")
    rule.states([parameter])
    wait_for_it()
    assert jit.run("SGD", (parameter, np.ones_like(parameter)), (0.5,))
    assert set(parameter.tolist()) == {0.5}


@pytest.mark.accelerator
def test_a_gradient_that_cannot_be_written_to_is_no_obstacle(accelerator):
    rule = SGD(1.0)
    parameter, gradient = np.ones(jit.WORTH_ELEMENTS, "f4"), np.ones(jit.WORTH_ELEMENTS, "f4")
    gradient.flags.writeable = False
    rule.states([parameter])
    wait_for_it()
    assert jit.run("SGD", (parameter, gradient), (1.0,))


def test_arrays_that_are_laid_out_oddly_are_left_to_numpy(monkeypatch):
    monkeypatch.setattr(jit, "_ready", {("SGD", "<f4"): lambda *arrays: pytest.fail("compiled code was called")})
    parameter, spread = np.zeros(3, "f4"), np.ones(6, "f4")[::2]
    shifted = np.frombuffer(b"\0" + np.ones(3, "<f4").tobytes(), np.uint8)[1:].view("<f4")
    for gradient in (spread, shifted):
        SGD(1.0).apply(parameter, gradient, (), 1)
    assert parameter.tolist() == [-2.0] * 3


def test_of_many_gradients_numpy_makes_the_mean(accelerator, monkeypatch):
    monkeypatch.setattr(jit, "available", lambda: True)
    monkeypatch.setattr(fused, "load", lambda *_: pytest.fail("it was compiled"))
    parameter = np.zeros(jit.WORTH_ELEMENTS, "f4")
    many = fused.MOST_GRADIENTS + 1
    weights, marks = Weights([1 / many] * many), Journal().marks
    assert not fused.run("SGD", parameter, [parameter] * many, weights, (), (0.1,), None, marks, 0)
    wait_for_it()
    assert not jit._asked


def test_small_arrays_are_not_worth_a_compiler(accelerator, monkeypatch):
    monkeypatch.setattr(jit, "available", lambda: True)
    monkeypatch.setattr(jit, "load", lambda *_: pytest.fail("it was compiled"))
    SGD().states([np.zeros(jit.WORTH_ELEMENTS - 1, "f4")])
    wait_for_it()
    assert not jit._asked


def test_a_process_that_is_short_of_memory_loads_no_compiler(accelerator, monkeypatch):
    monkeypatch.setattr(jit, "available", lambda: True)
    monkeypatch.setattr(jit, "headroom", lambda: jit.COMPILER_BYTES - 1)
    monkeypatch.setattr(jit, "load", lambda *_: pytest.fail("it was compiled"))
    SGD().states([np.zeros(jit.WORTH_ELEMENTS, "f4")])
    wait_for_it()
    assert not jit._ready


def test_a_compiler_that_fails_leaves_the_work_to_numpy(accelerator, monkeypatch, caplog):
    def fail(*_):
        raise OSError("no such library")

    monkeypatch.setattr(jit, "available", lambda: True)
    monkeypatch.setattr(jit, "load", fail)
    parameter = np.ones(jit.WORTH_ELEMENTS, "f4")
    SGD().states([parameter])
    wait_for_it()
    SGD(1.0).apply(parameter, np.ones_like(parameter), (), 1)
    assert set(parameter.tolist()) == {0.0}
    assert "no such library" in caplog.text
