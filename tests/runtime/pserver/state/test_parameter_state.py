import numpy as np
import pytest

from runtime.checkpoint.data_position import Progress
from runtime.parameters.declaration import Declaration, Tensor
from runtime.parameters.embedding_tables import Tables
from runtime.parameters.optimisers import Momentum
from runtime.parameters.sharding import even_table
from runtime.pserver.requests import Step
from runtime.pserver.state.eager_update import Coming
from runtime.pserver.state.parameter_state import ParameterState
from runtime.pserver.state.undo_journal import Journal
from runtime.pserver.steps.arriving_steps import ArrivingSteps

TENSORS = (Tensor("a", (5,), "<f4"), Tensor("b", (3,), "<f8"))


@pytest.fixture
def state():
    return new_state()


def new_state():
    state = ParameterState(Tables(0, even_table(1)))
    declaration = Declaration(TENSORS, Momentum(1 / 3))
    state.allocate(declaration, tuple(declaration.blocks(even_table(1))))
    state.fill([np.ones(tensor.size, tensor.dtype) for tensor in TENSORS])
    return state


def gradients(seed):
    rng = np.random.default_rng(seed)
    return [rng.normal(size=tensor.size).astype(tensor.dtype) for tensor in TENSORS]


def update(state, seed):
    state.update([Step(seed, 1, state.version, gradients(seed))], 1.0, state.version)


def bits(arrays):
    return [array.tobytes() for array in arrays]


def drafted(state, arriving, seed):
    coming = Coming(seed, 1, state.version, gradients(seed), arrived=len(TENSORS))
    draft = arriving.draft_of([coming])
    assert draft is not None
    draft.advance()
    return coming


def test_an_update_without_steps_repeats_the_version(state):
    before = bits(state.parameters)
    state.update([], 1.0, 0)
    assert (state.version, bits(state.parameters)) == (1, before)


@pytest.mark.parametrize("copied", [True, False])
def test_an_edition_with_readers_keeps_its_version(state, copied):
    edition = state.lend(copied)
    before = bits(edition.arrays)
    update(state, 1)
    assert bits(edition.arrays) == before != bits(state.parameters)


def test_a_snapshot_keeps_its_version_of_values_and_optimiser_state(state):
    update(state, 1)
    before = [bits(block) for block in zip(state.parameters, *zip(*state.optimiser_state, strict=True), strict=True)]
    snapshot = state.cut({}, Progress(), 1.0)
    update(state, 2)
    assert [bits(snapshot.take(number)) for number in range(len(snapshot))] == before
    assert (snapshot.version, state.version) == (1, 2)


def test_there_is_one_snapshot_until_it_is_forgotten(state):
    first = state.cut({}, Progress(), 0.0)
    assert state.cut({}, Progress(), 0.0) is first
    state.forget_cut(first)
    assert state.cut({}, Progress(), 0.0) is not first


def test_a_published_draft_has_the_bits_of_an_update(state):
    plain, arriving = new_state(), ArrivingSteps(state)
    for seed in range(1, 4):
        coming = drafted(state, arriving, seed)
        draft = arriving.take([coming.gradients])
        assert draft is not None
        state.publish(draft, [Step(seed, 1, state.version, coming.gradients)])
        update(plain, seed)
        assert (state.version, bits(state.parameters)) == (plain.version, bits(plain.parameters))


def test_a_draft_of_other_steps_is_not_taken_and_its_memory_serves_again(state):
    arriving = ArrivingSteps(state)
    before = bits(state.parameters)
    first = drafted(state, arriving, 1)
    memory = arriving.draft_with(first).state
    assert arriving.take([gradients(1)]) is None  # equal numbers in other arrays
    assert (state.version, bits(state.parameters), arriving.drafted) == (0, before, 0)
    assert arriving.draft_with(drafted(state, arriving, 2)).state is memory


def test_the_draft_follows_the_steps_that_are_known(state):
    arriving = ArrivingSteps(state)
    first = drafted(state, arriving, 1)
    second = drafted(state, arriving, 2)
    assert (arriving.draft_with(first), arriving.draft_with(second) is None) == (None, False)
    assert arriving.draft_of([]) is None


def test_moved_parameters_keep_their_memory_and_no_draft_is_made_beside_them(state):
    arriving = ArrivingSteps(state)
    arriving.may_draft = True
    assert arriving.drafts
    targets = [np.empty_like(parameter) for parameter in state.parameters]
    before = bits(state.parameters)
    state.move(Journal().marks, targets, [np.empty_like(target) for target in targets])
    assert (bits(targets), state.journalled, arriving.drafts) == (before, True, False)
    update(state, 1)
    assert all(parameter is target for parameter, target in zip(state.parameters, targets, strict=True))
