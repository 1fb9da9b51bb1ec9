import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from runtime.messages import training as messages
from runtime.parameters import optimisers, sharding
from runtime.parameters.kernels.numpy_kernels import PIECE_ELEMENTS
from runtime.parameters.optimisers import SGD, Adagrad, Adam, Momentum, Nesterov
from tests.messages import pattern

HASHES = {
    "": 0x811C9DC5,
    "a": 0xE40C292C,
    "w": 0xF20C3F36,
    "b": 0xE70C2DE5,
    "param_a": 0xC39EDA42,
    "param_b": 0xC29ED8AF,
    "p_0": 0x11A9BC60,
    "p_1": 0x12A9BDF3,
    "p_999": 0xB4A0B99D,
    "fc_0.w0": 0x92F353D2,
    "emb:sparse-0": 0xA98E577E,
}


@pytest.mark.parametrize(("text", "value"), HASHES.items())
def test_names_hash_as_in_the_reference(text, value):
    assert sharding.fnv1a(text) == value


def test_a_thousand_names_spread_over_ten_servers_as_in_the_reference():
    counts = np.bincount([sharding.fnv1a(f"p_{number}") % 10 for number in range(1000)])
    assert counts.tolist() == [95, 98, 98, 94, 95, 107, 109, 104, 103, 97]


@given(st.integers(1, sharding.SLOTS))
def test_every_server_has_its_fair_share_of_slots(servers):
    counts = np.bincount(sharding.even_table(servers), minlength=servers)
    assert counts.max() - counts.min() <= 1


@pytest.mark.parametrize("servers", [0, 1025])
def test_a_table_for_too_few_or_too_many_servers_is_refused(servers):
    with pytest.raises(ValueError, match=pattern(messages.PSERVER_COUNT_INVALID, count=servers)):
        sharding.even_table(servers)


def test_blocks_have_one_mebibyte_but_for_the_last():
    assert list(sharding.spans(600_000, 4)) == [(0, 262_144), (262_144, 524_288), (524_288, 600_000)]


VECTORS = [
    (SGD(0.1), 1, [0, 0.9, 1.8, 2.7, 3.6]),
    (Momentum(0.1, 0.9), 2, [0, 0.71, 1.42, 2.13, 2.84]),
    (Nesterov(0.1, 0.9), 1, [0, 0.81, 1.62, 2.43, 3.24]),
    (Adam(0.1, 0.9, 0.1, 1e-3), 1, [0, 0.9000999001, 1.900049975, 2.9000333222, 3.9000249938]),
    (Adam(0.1, 0.9, 0.1, 1e-3), 2, [0, 0.8001998002, 1.80009995, 2.8000666445, 3.8000499875]),
    (Adagrad(0.1, 1e-5), 1, [0, 0.900001, 1.9000005, 2.9000003333, 3.90000025]),
]


@pytest.mark.parametrize(("rule", "steps", "expected"), VECTORS)
@pytest.mark.parametrize("dtype", ["f4", "f8"])
def test_optimisers_give_the_reference_values(rule, steps, expected, dtype):
    parameter, gradient = np.arange(5, dtype=dtype), np.arange(5, dtype=dtype)
    (state,) = rule.states([parameter])
    for step in range(1, steps + 1):
        rule.apply(parameter, gradient, state, step)
    np.testing.assert_allclose(parameter, expected, rtol=0, atol=1e-8 if dtype == "f8" else 5e-7)


TORCH_STEPS = 200


def torch_optimiser(rule, parameter):
    torch = pytest.importorskip("torch", reason="group torch: torch is not installed (pip install torch==2.13.0)")
    if isinstance(rule, Adam):
        return torch.optim.Adam([parameter], rule.lr, (rule.beta1, rule.beta2), rule.eps)
    return torch.optim.Adagrad([parameter], rule.lr, eps=rule.eps)


@pytest.mark.torch
@pytest.mark.parametrize("size", [1e-6, 1e-3, 1.0])
@pytest.mark.parametrize("rule", [Adam(), Adam(0.01, eps=1e-6), Adagrad(), Adagrad(0.1, eps=1e-6)])
def test_small_and_large_gradients_give_the_parameters_of_torch(rule, size):
    torch = pytest.importorskip("torch", reason="group torch: torch is not installed (pip install torch==2.13.0)")
    gradients = (np.random.default_rng(3).normal(size=(TORCH_STEPS, 64)) * size).astype("f4")
    ours = np.linspace(-1, 1, 64, dtype="f4")
    theirs = torch.nn.Parameter(torch.from_numpy(ours.copy()))
    other = torch_optimiser(rule, theirs)
    (state,) = rule.states([ours])
    for step, gradient in enumerate(gradients, 1):
        rule.apply(ours, gradient, state, step)
        theirs.grad = torch.from_numpy(gradient.copy())
        other.step()
    np.testing.assert_allclose(ours, theirs.detach().numpy(), rtol=0, atol=1e-6)


@pytest.mark.parametrize("rule", [SGD(), Momentum(), Nesterov(), Adagrad(), Adam()])
def test_cutting_into_blocks_changes_no_bit(rule):
    rng = np.random.default_rng(1)
    whole = rng.normal(size=2 * PIECE_ELEMENTS + 77).astype("f4")
    gradient = rng.normal(size=whole.size).astype("f4")
    parts = np.split(whole.copy(), [1000, PIECE_ELEMENTS + 5])
    cuts = np.split(gradient, [1000, PIECE_ELEMENTS + 5])
    states = rule.states(parts)
    (state,) = rule.states([whole])
    for step in (1, 2):
        rule.apply(whole, gradient, state, step)
        for part, cut, kept in zip(parts, cuts, states, strict=True):
            rule.apply(part, cut, kept, step)
    assert np.concatenate(parts).tobytes() == whole.tobytes()


@pytest.mark.parametrize("rule", [SGD(0.5), Momentum(0.1, 0.8), Nesterov(), Adagrad(), Adam()])
def test_a_rule_survives_the_wire(rule):
    assert optimisers.from_json(rule.to_json()) == rule


def test_an_unknown_rule_is_refused_with_the_known_ones():
    with pytest.raises(ValueError, match=pattern(messages.OPTIMISER_UNKNOWN, name="'Magic'")):
        optimisers.from_json({"name": "Magic"})


@pytest.mark.parametrize("rate", [-1, float("nan"), "fast"])
def test_a_learning_rate_that_is_no_rate_is_refused(rate):
    with pytest.raises(ValueError, match=pattern(messages.NUMBER_NEGATIVE, name="lr")):
        SGD(rate)
