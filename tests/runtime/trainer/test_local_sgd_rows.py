"""Tables in mode ``outer(H)``: rows are changed by each trainer on its own, then averaged like the parameters."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from runtime import dist
from runtime.errors import RegattaError
from runtime.messages import training as messages
from runtime.parameters import embedding_tables
from runtime.parameters.embedding_tables import Rows, Table
from runtime.trainer.local_sgd_rows import RoundRows
from runtime.trainer.local_store import LocalStore
from runtime.trainer.params import Params
from tests.messages import pattern
from tests.properties import examples

ROWS, DIM, LENGTH = 4, 3, 3
EVERY = np.arange(ROWS)
RULES = [dist.SGD(0.3), dist.Momentum(0.3), dist.Nesterov(0.3), dist.Adagrad(0.3), dist.Adam(0.3)]


def train(steps, rule, length=LENGTH):
    """Apply the same gradients to a parameter and to the named rows of a table of the same size."""
    params = Params({"w": np.zeros((ROWS, DIM), "f4")}, LocalStore(), rule, f"outer({length})")
    table = params.table("rows", DIM, init=dist.Zeros())
    for ids, gradients in steps:
        dense = np.zeros((ROWS, DIM), "f4")
        dense[ids] = gradients
        table.push(ids, gradients)
        params.push_pull({"w": dense})
        yield params["w"], table.pull(EVERY)


def some(rng, ids=EVERY):
    return ids, rng.standard_normal((len(ids), DIM)).astype("f4")


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: type(rule).__name__)
def test_rows_that_every_step_uses_are_trained_as_parameters_are(rule):
    rng = np.random.default_rng(1)
    for dense, rows in train([some(rng) for _ in range(4 * LENGTH + 1)], rule):
        np.testing.assert_allclose(rows, dense, rtol=1e-5, atol=1e-6)


@given(
    chosen=st.lists(st.sets(st.integers(0, ROWS - 1), min_size=1), min_size=1, max_size=8),
    seed=st.integers(0, 2**16),
)
@settings(max_examples=examples(40), deadline=None)
def test_rows_are_trained_as_parameters_are_whichever_a_step_uses(chosen, seed):
    """If each round uses every row once: without gradients, the momentum of a row does not change."""
    rng = np.random.default_rng(seed)
    steps = []
    for number, ids in enumerate(chosen):
        steps.append(some(rng, np.array(sorted(ids))))
        if number % (LENGTH - 1) == LENGTH - 2:
            steps.append(some(rng))
    for dense, rows in train(steps, dist.SGD(0.3)):
        np.testing.assert_array_equal(rows, dense)


def test_a_row_that_a_round_did_not_touch_stays():
    *_, (_dense, rows) = train(
        [([0], np.ones((1, DIM), "f4"))] * 2 + [([1], np.ones((1, DIM), "f4"))] * 2, dist.SGD(1.0), 2
    )
    change = -0.7 * 2 * 1.9
    np.testing.assert_allclose(rows[:, 0], [change, change, 0.0, 0.0], rtol=1e-6)


def test_two_trainers_change_rows_by_what_their_samples_weigh(servers, together):
    attempt = servers(2, trainers=2)

    def run(index):
        params = Params({"w": np.zeros(1, "f4")}, attempt.store(index), dist.SGD(1.0), "outer(2)")
        table = params.table("rows", 1, init=dist.Zeros())
        mine = [7, 100 + index]  # one row is common, one is this trainer's alone
        gradient = np.full((2, 1), [1.0, 4.0][index], "f4")
        for _ in range(2):
            table.push(mine, gradient)
            params.push_pull({"w": np.zeros(1, "f4")}, n=[10, 30][index])
        rows = table.pull([7, 100, 101])[:, 0].tolist()
        params.leave()
        return rows

    step = -0.7 * 2 * 1.9
    assert together(run, 2) == [pytest.approx([step * 3.25, step * 0.25, step * 3.0])] * 2


def test_what_was_trained_is_there_after_a_pull():
    params = Params({"w": np.zeros(1, "f4")}, LocalStore(), dist.SGD(1.0), "outer(100)")
    table = params.table("rows", 1, init=dist.Zeros())
    table.push([5, -3], np.ones((2, 1), "f4"))
    params.push_pull({"w": np.ones(1, "f4")})
    params.pull()
    ids, rows = table.all()
    assert ids.tolist() == [-3, 5]
    np.testing.assert_array_equal(rows, table.pull(ids))


def test_rows_are_fetched_once_a_round():
    asked = []

    def fetch(ids):
        asked.append(ids.tolist())
        return np.zeros((ids.size, 1), "f4")

    rows = RoundRows(Table("rows", 1), fetch)
    rows.values(np.array([1, 2]))
    rows.apply(Rows(np.array([2, 3]), np.ones((2, 1), "f4")), 1)
    rows.begin()
    rows.values(np.array([3]))
    assert asked == [[1, 2], [3], [3]]


def test_a_trainer_without_memory_for_more_rows_raises(monkeypatch):
    monkeypatch.setattr(embedding_tables, "headroom", lambda: 0)
    with pytest.raises(RegattaError, match=pattern(messages.TRAINER_MEMORY_FULL, rows=2, name="'rows'")):
        RoundRows(Table("rows", 1), lambda ids: np.zeros((ids.size, 1), "f4")).values(np.array([1, 2]))
