"""Rows of tables on one server, and on several against a plain dictionary."""

import re

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from runtime.messages import training as messages
from runtime.parameters import embedding_tables
from runtime.parameters.declaration import Declaration, Tensor
from runtime.parameters.embedding_tables import Full, Piece, Rows, Shelf, Table, Tables, Unlike
from runtime.parameters.initializers import Normal, Uniform, Zeros
from runtime.parameters.lr_schedules import Linear
from runtime.parameters.messages import Outcome
from runtime.parameters.optimisers import SGD, Adagrad, Adam, Momentum, Nesterov
from runtime.parameters.sharding import even_table, servers_of_rows, slots_of_rows
from runtime.pserver.requests import Step, TrainerId
from runtime.pserver.shard import Shard
from tests.messages import pattern
from tests.properties import examples

RULES = [SGD(0.1), Momentum(0.1), Nesterov(0.1), Adagrad(0.1), Adam(0.1)]
IDS = st.integers(-(2**63), 2**63 - 1)


def ids(*numbers):
    return np.array(numbers, "i8")


def rows(numbers, *values):
    return Rows(ids(*numbers), np.array(values, "f4").reshape(len(numbers), -1))


def shelf(dim=1, init=None, rule=None, seed=0):
    return Shelf(Table("emb", dim, init or Zeros(), rule or SGD(1.0), seed))


def apply(one, pushed, rounds=0, scale=1.0):
    one.reserve(one.unseen(pushed.ids))
    one.apply(pushed.summed(), rounds, scale)


# --- First values ----------------------------------------------------------------------------------------------------
@given(st.lists(IDS, max_size=20), st.integers(0, 2**63), st.sampled_from([Uniform(0.1), Normal(0.1), Zeros()]))
def test_a_row_starts_equal_for_every_caller_and_every_combination_of_ids(some, seed, init):
    asked = ids(*some)
    together = init.rows(seed, asked, 3)
    alone = [init.rows(seed, asked[n : n + 1], 3) for n in range(len(some))]
    assert together.tobytes() == b"".join(row.tobytes() for row in alone)
    assert (together.shape, together.dtype) == ((len(some), 3), np.float32)


def test_first_values_of_rows_are_those_of_the_reference():
    # SplitMix64's finaliser in integers, as published by its authors.
    def mix(word):
        word = (word ^ (word >> 30)) * 0xBF58476D1CE4E5B9 % 2**64
        word = (word ^ (word >> 27)) * 0x94D049BB133111EB % 2**64
        return word ^ (word >> 31)

    golden = 0x9E3779B97F4A7C15
    stream = mix((-5) % 2**64 ^ mix((7 + golden) % 2**64))
    words = [mix((stream + column * golden) % 2**64) for column in (1, 2)]
    expected = [(word >> 40) * 2.0**-24 * 2 - 1 for word in words]
    np.testing.assert_allclose(Uniform(1.0).rows(7, ids(-5), 2)[0], expected, rtol=1e-6)


@pytest.mark.parametrize(("init", "deviation"), [(Uniform(0.3), 0.3 / 3**0.5), (Normal(0.3), 0.3)])
def test_first_values_are_spread_as_they_should(init, deviation):
    drawn = init.rows(1, np.arange(20_000), 8)
    assert abs(drawn.mean()) < 0.002
    assert drawn.std() == pytest.approx(deviation, rel=0.02)
    assert abs(np.corrcoef(drawn[:-1, 0], drawn[1:, 0])[0, 1]) < 0.03


def test_tables_of_another_seed_begin_otherwise():
    assert (Uniform(1.0).rows(1, np.arange(9), 4) != Uniform(1.0).rows(2, np.arange(9), 4)).all()


# --- Where rows live -------------------------------------------------------------------------------------------------
def test_rows_are_spread_evenly_and_their_slots_are_those_of_the_reference():
    counts = np.bincount(servers_of_rows("emb", np.arange(40_000), even_table(4)))
    assert counts.min() > 9_500
    assert slots_of_rows("emb", ids(0, 1, -1)).tolist() == [_slot("emb", number) for number in (0, 1, -1)]


def _slot(name, number):
    hashed = 0x811C9DC5
    for byte in name.encode():
        hashed = (hashed ^ byte) * 0x01000193 % 2**32
    word = number % 2**64 ^ hashed
    word = (word ^ (word >> 30)) * 0xBF58476D1CE4E5B9 % 2**64
    word = (word ^ (word >> 27)) * 0x94D049BB133111EB % 2**64
    return (word ^ (word >> 31)) % 1024


# --- Updates ---------------------------------------------------------------------------------------------------------
def test_a_row_that_comes_twice_is_updated_once_by_the_sum():
    one = shelf(rule=Adam(0.1, 0.9, 0.1, 1e-3))
    apply(one, rows([7, 7], 1.0, 2.0))
    other = shelf(rule=Adam(0.1, 0.9, 0.1, 1e-3))
    apply(other, rows([7], 3.0))
    (piece,), (expected,) = one.pieces(), other.pieces()
    assert piece.updates.tolist() == [1]
    assert [array.tobytes() for array in piece.arrays] == [array.tobytes() for array in expected.arrays]


@given(st.lists(st.tuples(st.integers(0, 5), st.integers(-9, 9)), max_size=30))
def test_sums_are_those_of_a_dictionary(pairs):
    expected = {}
    for number, value in pairs:
        expected[number] = expected.get(number, 0) + value
    summed = rows([number for number, _ in pairs], *(value for _, value in pairs)).summed() if pairs else None
    found = dict(zip(summed.ids.tolist(), summed.values[:, 0].tolist(), strict=True)) if summed else {}
    assert found == expected


def test_rows_that_are_in_order_already_are_not_copied():
    some = rows([1, 4, 9], 1.0, 2.0, 3.0)
    assert some.summed() is some
    assert rows([1, 1], 1.0, 2.0).summed().values.tolist() == [[3.0]]


@pytest.mark.parametrize("rule", RULES)
def test_a_row_is_updated_as_a_parameter_of_its_own_would_be(rule):
    one = shelf(dim=3, init=Uniform(0.5), rule=rule, seed=4)
    rng = np.random.default_rng(1)
    plain = {number: Uniform(0.5).rows(4, ids(number), 3)[0] for number in range(4)}
    states = {number: rule.states([row])[0] for number, row in plain.items()}
    counts = dict.fromkeys(plain, 0)
    for _ in range(6):
        some = rng.permutation(4)[:2]
        gradients = rng.normal(size=(2, 3)).astype("f4")
        apply(one, Rows(some, gradients))
        for number, gradient in zip(some.tolist(), gradients, strict=True):
            counts[number] += 1
            rule.apply(plain[number], gradient, states[number], counts[number])
    np.testing.assert_allclose(one.values(np.arange(4)), [plain[n] for n in range(4)], rtol=1e-6, atol=1e-7)


def test_the_schedule_of_the_learning_rate_advances_by_rounds():
    one = shelf(rule=SGD(Linear(1.0, 0.0, 10)))
    apply(one, rows([1], 1.0), rounds=5)
    assert one.values(ids(1)).tolist() == [[-0.5]]


def test_rows_that_were_only_looked_at_take_no_memory():
    one = shelf(init=Uniform(0.5))
    before = one.values(ids(1, 2))
    apply(one, rows([1], 1.0))
    assert len(one) == 1
    np.testing.assert_array_equal(one.values(ids(1, 2)), before - [[1.0], [0.0]])


def test_many_rows_are_updated_piece_by_piece_to_the_same_bits(monkeypatch):
    gradients = Rows(np.arange(1000), np.random.default_rng(1).normal(size=(1000, 5)).astype("f4"))
    values = []
    for elements in (1 << 20, 35):
        monkeypatch.setattr(embedding_tables, "_PIECE_ELEMENTS", elements)
        one = shelf(dim=5, rule=Adam())
        apply(one, gradients)
        values.append(one.values(gradients.ids).tobytes())
    assert values[0] == values[1]


# --- Memory ----------------------------------------------------------------------------------------------------------
def test_a_table_without_memory_for_more_rows_raises_and_is_unchanged(monkeypatch):
    server = Tables(1, (1,) * 1024)
    table = Table("emb", 4, Zeros())
    server.declare(table)
    first = {"emb": Rows(np.arange(1500), np.ones((1500, 4), "f4"))}
    server.promise(first, "trainer-0")
    server.apply([(first, 1.0)], 1, 1.0)
    monkeypatch.setattr(embedding_tables, "headroom", lambda: 100 << 10)
    with pytest.raises(
        Full, match=pattern(messages.TABLE_MEMORY_FULL, name="'emb'", server=1, rows="1,500", more="3,000")
    ):
        server.promise({"emb": Rows(np.arange(2000, 5000), np.ones((3000, 4), "f4"))}, "trainer-0")
    assert len(server.declare(table)) == 1500


def test_rows_of_a_checkpoint_that_do_not_fit_raise(monkeypatch):
    table = Table("emb", 1, Zeros())
    piece = Piece(np.arange(5), np.ones(5, "i4"), (np.zeros((5, 1), "f4"),))
    monkeypatch.setattr(embedding_tables, "headroom", lambda: 0)
    with pytest.raises(Full, match=pattern(messages.TABLE_MEMORY_FULL)):
        Tables(0, even_table(1)).take(table, piece)


def test_memory_is_reserved_for_rows_pushed_by_several_trainers():
    server = Tables(0, even_table(1))
    server.declare(Table("emb", 1, Zeros(), SGD(1.0)))
    pushed = [{"emb": Rows(np.arange(n * 5000, (n + 1) * 5000), np.ones((5000, 1), "f4"))} for n in range(3)]
    for one in pushed:
        server.promise(one, "trainer-0")
    server.apply([(one, 0.5) for one in pushed], 1, 1.0)
    (held,) = server
    assert set(held.values(np.arange(15_000))[:, 0].tolist()) == {-0.5}


def test_another_table_of_the_same_name_is_refused_with_a_message():
    server = Tables(0, even_table(1))
    server.declare(Table("emb", 8))
    with pytest.raises(Unlike, match=pattern(messages.TABLE_DECLARATIONS_DIFFER, name="'emb'")) as refused:
        server.declare(Table("emb", 16))
    assert re.findall(r"\d+", str(refused.value)) == ["8", "16"]


@pytest.mark.parametrize("dim", [0, -1, 2.5, True, 300_000])
def test_rows_of_an_impossible_length_are_refused(dim):
    with pytest.raises(ValueError, match=pattern(messages.TABLE_DIM_INVALID, most="262,144", dim=dim)):
        Table("emb", dim)


@pytest.mark.parametrize("init", [Zeros(), Uniform(0.1), Normal(0.2)])
def test_a_table_survives_the_wire(init):
    table = Table("emb", 8, init, Adam(0.1), 3)
    assert Table.from_json(table.to_json()) == table


# --- In a shard ------------------------------------------------------------------------------------------------------
TRAINERS = [TrainerId(index, 10 + index) for index in range(3)]


def shard(mode):
    """A shard with three trainers in their first pass, and a table of single numbers that begin at zero."""
    declaration = Declaration((Tensor("w", (1,), "<f4"),), SGD(1.0), mode)
    made = Shard(0, even_table(1), 3)
    made.change_members({trainer.index: trainer.incarnation for trainer in TRAINERS})
    made.declare("declare", TRAINERS[0], declaration, 0.0)
    made.initialise("init", TRAINERS[0], declaration.digest, [np.zeros(1, "f4")])
    made.state.tables.declare(Table("emb", 1, Zeros(), SGD(1.0)))
    for trainer in TRAINERS:
        made.begin_pass(trainer, trainer, 1, 0)
    return made


def push(made, trainer, seq, value, samples=1, base=0):
    pushed = {"emb": rows([5], float(value))}
    gradients = [np.zeros(1, "f4")] if samples else ()
    return made.push((trainer, seq), trainer, Step(seq, samples, base, gradients, pushed if samples else {}))


def value_of(made):
    (held,) = made.state.tables
    return held.values(ids(5)).tolist()


def test_rows_of_two_of_three_are_averaged_and_those_of_the_late_one_dropped():
    made = shard("m_of_n(2)")
    for trainer, value in zip(TRAINERS, (1, 3, 8), strict=True):
        releases = push(made, trainer, 2, value)
    assert [release.outcome for release in releases] == [Outcome.STALE]
    assert value_of(made) == [[-2.0]]


@pytest.mark.invariant("The rows of a table are updated once per step, on any number of pservers.")
def test_rows_of_a_step_that_comes_again_are_applied_once():
    made = shard("async")
    for _ in range(2):
        releases = push(made, TRAINERS[0], 2, 1)
    assert [release.outcome for release in releases] == [Outcome.DUPLICATE]
    assert value_of(made) == [[-1.0]]


def test_rows_of_a_trainer_that_is_gone_before_the_version_is_made_are_dropped():
    made = shard("sync")
    push(made, TRAINERS[0], 2, 1)
    push(made, TRAINERS[1], 2, 3)
    made.change_members({0: 10, 1: 11})
    push(made, TRAINERS[2], 2, 100)
    assert value_of(made) == [[-2.0]]


def test_a_step_of_no_samples_takes_nothing_from_the_rows_of_others():
    made = shard("sync")
    push(made, TRAINERS[0], 2, 6, samples=4)
    push(made, TRAINERS[1], 2, 0, samples=0)
    push(made, TRAINERS[2], 2, 3, samples=8)
    assert value_of(made) == [[-4.0]]


# --- Several servers against a dictionary ----------------------------------------------------------------------------
class TableMachine(RuleBasedStateMachine):
    """A table over a changing number of servers equals one dictionary of rows. Numbers are small integers."""

    @initialize(servers=st.integers(1, 4))
    def begin(self, servers):
        self.table = Table("emb", 2, Uniform(0.5), Momentum(1.0, 0.5), 3)
        self.servers = self._fresh(servers)
        self.model = {}  # id -> value, velocity
        self.version = 0

    def _fresh(self, count):
        self.slots = even_table(count)
        servers = [Tables(number, self.slots) for number in range(count)]
        for server in servers:
            server.declare(self.table)
        return servers

    def _spread(self, some):
        """Split rows by server."""
        where = servers_of_rows("emb", some.ids, self.slots)
        return [{"emb": some.part(where == number)} for number in range(len(self.servers))]

    pushes = st.lists(st.tuples(st.integers(-3, 12), st.integers(-4, 4)), min_size=1, max_size=8)

    @rule(pushes=st.lists(pushes, min_size=1, max_size=3))
    def step(self, pushes):
        self.version += 1
        weight = 1 / len(pushes)
        parts = [self._spread(rows([n for n, _ in push], *[[v, -v] for _, v in push])) for push in pushes]
        for number, server in enumerate(self.servers):
            for part in parts:
                server.promise(part[number], "trainer-0")
            server.apply([(part[number], weight) for part in parts], self.version, 1.0)
        self._apply_to_model(pushes, np.float32(weight))

    def _apply_to_model(self, pushes, weight):
        sums = {}
        for push in pushes:
            for number, value in push:
                sums.setdefault(number, np.zeros(2, "f4"))
                sums[number] = sums[number] + np.array([value, -value], "f4") * weight
        for number, gradient in sums.items():
            value, velocity = self.model.get(number, (self._first(number), np.zeros(2, "f4")))
            velocity = velocity * np.float32(0.5) - gradient
            self.model[number] = value + velocity, velocity

    def _first(self, number):
        return Uniform(0.5).rows(3, ids(number), 2)[0]

    @rule(count=st.integers(1, 4))
    def another_number_of_servers(self, count):
        before, self.servers = self.servers, self._fresh(count)
        for server in self.servers:
            for old in before:
                for held in old:
                    for piece in held.pieces():
                        server.take(self.table, piece)

    @invariant()
    def every_row_is_that_of_the_dictionary(self):
        asked = np.arange(-4, 14)
        where = servers_of_rows("emb", asked, self.slots)
        for number, server in enumerate(self.servers):
            (held,) = server
            mine = asked[where == number]
            expected = [self.model[n][0] if n in self.model else self._first(n) for n in mine.tolist()]
            np.testing.assert_allclose(held.values(mine), np.reshape(expected, (-1, 2)), rtol=0, atol=1e-5)
        assert sum(len(held) for server in self.servers for held in server) == len(self.model)


@pytest.mark.invariant("The rows of a table are updated once per step, on any number of pservers.")
class TestTableOverServers(TableMachine.TestCase):
    settings = settings(max_examples=examples(40), stateful_step_count=15, deadline=None)
