import numpy as np
import pytest

from runtime.parameters.declaration import Declaration, Tensor
from runtime.parameters.optimisers import SGD, Momentum
from runtime.parameters.sharding import even_table
from runtime.protocol import bf16
from runtime.pserver.requests import Step, TrainerId
from runtime.pserver.shard import Shard
from runtime.pserver.state.eager_update import Coming

TENSORS = (Tensor("a", (5,), "<f4"), Tensor("b", (3,), "<f8"))
A, B = TrainerId(0, 1), TrainerId(1, 2)


@pytest.fixture
def shard():
    shard = Shard(0, even_table(1), 2)
    shard.arriving.may_draft = shard.arriving.may_round = True
    declaration = Declaration(TENSORS, Momentum(1 / 3))
    shard.change_members({0: 1, 1: 2})
    shard.declare("declare", A, declaration, 0.0)
    shard.initialise("init", A, declaration.digest, [np.ones(t.size, t.dtype) for t in TENSORS])
    for trainer in (A, B):
        shard.begin_pass(f"begin {trainer.index}", trainer, 1, 0)
    return shard


def coming(shard, trainer, seq, halved=False, seed=0):
    rng = np.random.default_rng(10 * seq + trainer.index + seed)
    gradients = [rng.normal(size=t.size).astype(t.dtype) for t in TENSORS]
    step = Coming(seq, 1, shard.version, gradients, halved=halved)
    shard.expect(trainer, step)
    return step


def arrive(shard, step, blocks=1):
    for _ in range(blocks):
        step.arrived += 1
        shard.arrive(step)


def push(shard, trainer, step):
    return shard.push((trainer.index, step.seq), trainer, Step(step.seq, 1, step.base, step.gradients))


def whole_step(shard, seq, halved=False):
    steps = [(trainer, coming(shard, trainer, seq, halved)) for trainer in (A, B)]
    for trainer, step in steps:
        arrive(shard, step, len(TENSORS))
        push(shard, trainer, step)


def test_a_block_is_made_when_it_has_come_from_everybody(shard):
    first, second = coming(shard, A, 2), coming(shard, B, 2)
    arrive(shard, first, 2)
    assert shard.arriving.drafted == 0
    arrive(shard, second)
    assert shard.arriving.drafted == 1


def test_nothing_of_it_counts_before_the_last_step_is_whole(shard):
    before = [array.tobytes() for array in shard.state.parameters]
    steps = [(A, coming(shard, A, 2)), (B, coming(shard, B, 2))]
    for _trainer, step in steps:
        arrive(shard, step, 2)
    push(shard, *steps[0])
    assert (shard.version, [array.tobytes() for array in shard.state.parameters]) == (0, before)
    push(shard, *steps[1])
    assert shard.version == 1


def test_another_step_than_the_one_that_came_is_not_taken_for_it(shard):
    steps = [(A, coming(shard, A, 2)), (B, coming(shard, B, 2))]
    for _trainer, step in steps:
        arrive(shard, step, 2)
    push(shard, *steps[0])
    zeros = [np.zeros(t.size, t.dtype) for t in TENSORS]
    shard.push("other", B, Step(2, 1, 0, zeros))
    expected = np.float32(1) - steps[0][1].gradients[0] * np.float32(0.5) * np.float32(1 / 3)
    assert np.allclose(shard.state.parameters[0], expected)


def test_without_memory_for_two_versions_none_is_drafted(shard):
    shard.arriving.may_draft = False
    first, second = coming(shard, A, 2), coming(shard, B, 2)
    for step in (first, second):
        arrive(shard, step, 2)
    assert shard.arriving.draft_with(first) is None


@pytest.mark.parametrize("mode", ["async", "ssp(2)", "m_of_n(2)"])
def test_modes_whose_versions_do_not_wait_for_all_draft_nothing(mode):
    shard = Shard(0, even_table(1), 2)
    shard.arriving.may_draft = True
    declaration = Declaration(TENSORS, SGD(0.1), mode)
    shard.change_members({0: 1, 1: 2})
    shard.declare("declare", A, declaration, 0.0)
    shard.initialise("init", A, declaration.digest, [np.ones(t.size, t.dtype) for t in TENSORS])
    for trainer in (A, B):
        shard.begin_pass(f"begin {trainer.index}", trainer, 1, 0)
    steps = [coming(shard, trainer, 2) for trainer in (A, B)]
    assert [shard.arriving.draft_with(step) for step in steps] == [None, None]


# --- Updates in bfloat16 ---------------------------------------------------------------------------------------------
def test_a_rounded_version_is_the_one_before_and_its_update(shard):
    values = shard.state.parameters[0].copy()
    for seq in range(2, 8):
        whole_step(shard, seq, halved=True)
        edition = shard.lend()
        (header, bits), (_header, doubles) = edition.updates
        values += bf16.widen(np.frombuffer(bits, "<u2"))
        shard.state.editions.return_edition(edition)
        assert values.tobytes() == shard.state.parameters[0].tobytes()
        assert bytes(doubles) == shard.state.parameters[1].tobytes(), "float64 is sent as it is"
    assert header.dtype.name == "BF16"


def exact_values(seqs):
    value, velocity = np.ones(5), np.zeros(5)
    for seq in seqs:
        gradients = [np.random.default_rng(10 * seq + index).normal(size=5).astype("f4") for index in range(2)]
        velocity = 0.9 * velocity - sum(gradients) / 2 / 3
        value += velocity
    return value, velocity


def test_rounding_adds_nothing_up(shard):
    for seq in range(2, 202):
        whole_step(shard, seq, halved=True)
    value, velocity = exact_values(range(2, 202))
    assert np.abs(shard.state.parameters[0] - value).max() <= np.abs(velocity).max() / 256 + 1e-4


def test_a_version_that_is_made_in_one_piece_pays_what_was_owed(shard):
    for seq in range(2, 10):
        whole_step(shard, seq, halved=True)
    steps = [(trainer, coming(shard, trainer, 10, halved=True)) for trainer in (A, B)]
    for trainer, step in steps:
        push(shard, trainer, step)  # without a notification of any block
    value, _velocity = exact_values(range(2, 11))
    assert np.abs(shard.state.parameters[0] - value).max() < 1e-5
    assert shard.lend().updates == []


def test_without_memory_for_exact_values_versions_are_not_rounded(shard):
    shard.arriving.may_round = False
    whole_step(shard, 2, halved=True)
    assert shard.lend().updates == []
