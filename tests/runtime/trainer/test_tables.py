"""Tables as training scripts use them: alone and with parameter servers, with equal results."""

import re

import numpy as np
import pytest

from runtime import contract, dist
from runtime.errors import UsageError
from runtime.messages import training as messages
from runtime.parameters import embedding_tables
from runtime.parameters.embedding_tables import Piece
from runtime.parameters.sharding import even_table
from runtime.protocol.client import Client
from runtime.pserver.server import ShardServer
from runtime.pserver.shard import Shard
from runtime.trainer.environment import Alone
from runtime.trainer.job import Job
from runtime.trainer.local_store import LocalStore
from runtime.trainer.params import Params
from runtime.trainer.servers.server_store import ServerStore
from tests.messages import pattern as pattern_of

VOCABULARY = 200


def params(store, mode="sync", opt=None, nonfinite="raise"):
    return Params({"w": np.zeros(3, "f4")}, store, opt or dist.SGD(1.0), mode, nonfinite, seed=3)


def zeros(p, dim=2, **options):
    return p.table("emb", dim, init=dist.Zeros(), **options)


def ones(*shape):
    return np.ones(shape, "f4")


def step(p, n=1):
    p.push_pull({"w": ones(3)}, n=n)


# --- In one process --------------------------------------------------------------------------------------------------
def test_rows_that_are_pushed_are_updated_with_the_next_step():
    p = params(LocalStore())
    table = zeros(p)
    table.push([7], ones(1, 2))
    assert table.pull([7]).tolist() == [[0.0, 0.0]]
    step(p)
    assert table.pull([7, 8]).tolist() == [[-1.0, -1.0], [0.0, 0.0]]


def test_ids_of_any_shape_give_rows_of_that_shape():
    table = params(LocalStore()).table("emb", 4)
    rows = table.pull(np.array([[1, 2, 1], [3, 3, 9]]))
    assert (rows.shape, rows.dtype) == ((2, 3, 4), np.float32)
    np.testing.assert_array_equal(rows[0, 0], rows[0, 2])
    assert table.pull(np.empty((0, 5), int)).shape == (0, 5, 4)


@pytest.mark.parametrize("ids", [[3, 5], [5, 3], [5, 5]])
def test_gradients_may_be_written_into_once_they_were_pushed(ids):
    p = params(LocalStore())
    table = zeros(p, 1)
    gradients = ones(2, 1)
    table.push(ids, gradients)
    gradients[:] = 100
    step(p)
    assert table.all()[1].sum() == -2.0


def test_several_pushes_of_a_step_are_one_update():
    p = params(LocalStore())
    table = zeros(p, 1, opt=dist.Adagrad(1.0, 0.0))
    table.push([7, 7], np.array([[1.0], [1.0]], "f4"))
    table.push([7], ones(1, 1))
    step(p)
    assert table.pull([7]).tolist() == [[-1.0]]


def test_all_rows_that_were_trained_come_in_order_of_id():
    p = params(LocalStore())
    table = zeros(p, 1)
    table.push([9, -2, 5], np.array([[1.0], [2.0], [3.0]], "f4"))
    step(p)
    ids, rows = table.all()
    assert (ids.tolist(), rows[:, 0].tolist()) == ([-2, 5, 9], [-2.0, -3.0, -1.0])


@pytest.mark.parametrize(
    ("ids", "grads", "refused"),
    [
        ([1.5], ones(1, 2), pattern_of(messages.TABLE_IDS_TYPE_WRONG, name="'emb'", type="float64")),
        (
            [1, 2],
            ones(1, 2),
            pattern_of(messages.TABLE_GRADIENTS_SHAPE_WRONG, name="'emb'", shape="(1, 2)", due="(2, 2)"),
        ),
        ([1], ones(1, 3), pattern_of(messages.TABLE_GRADIENTS_SHAPE_WRONG, name="'emb'", shape="(1, 3)", due="(1, 2)")),
        ([1], np.ones((1, 2)), pattern_of(messages.TABLE_GRADIENTS_TYPE_WRONG, name="'emb'", type="float64")),
        ([1], [[1.0, 1.0]], pattern_of(messages.TABLE_GRADIENTS_NOT_AN_ARRAY, name="'emb'", type="list")),
        (np.array([2**63], "u8"), ones(1, 2), pattern_of(messages.TABLE_IDS_TYPE_WRONG, name="'emb'", type="uint64")),
    ],
)
def test_rows_that_do_not_fit_are_refused_with_the_table_s_name(ids, grads, refused):
    with pytest.raises(UsageError, match=refused):
        zeros(params(LocalStore())).push(ids, grads)


@pytest.mark.parametrize(
    ("arguments", "refused"),
    [
        ({"name": "", "dim": 2}, pattern_of(messages.TABLE_NAME_INVALID)),
        ({"name": "emb", "dim": 0}, pattern_of(messages.TABLE_DIM_INVALID, most="262,144", dim=0)),
        ({"name": "emb", "dim": 2, "init": 0.5}, pattern_of(messages.TABLE_OPTIONS_INVALID)),
        ({"name": "emb", "dim": 2, "opt": "adam"}, pattern_of(messages.TABLE_OPTIONS_INVALID)),
    ],
)
def test_a_table_that_makes_no_sense_is_refused(arguments, refused):
    with pytest.raises(UsageError, match=refused):
        params(LocalStore()).table(**arguments)


def test_a_second_table_of_the_same_name_is_refused():
    p = params(LocalStore())
    zeros(p)
    with pytest.raises(UsageError, match=pattern_of(messages.TABLE_NAME_INVALID)):
        zeros(p)


def test_a_row_that_is_not_finite_is_reported_with_its_table():
    p = params(LocalStore())
    zeros(p).push([1], np.full((1, 2), np.nan, "f4"))
    with pytest.raises(UsageError, match=pattern_of(messages.LOWER_LEARNING_RATE)):
        step(p)


@pytest.mark.parametrize(("policy", "parameter", "row"), [("reject", 0.0, 0.0), ("zero", -1.0, -1.0)])
def test_what_is_not_finite_leaves_out_the_step_or_counts_as_zero(policy, parameter, row):
    p = params(LocalStore(), nonfinite=policy)
    table = zeros(p)
    table.push([1], np.array([[np.inf, 1.0]], "f4"))
    step(p)
    assert p["w"][0] == parameter
    assert table.pull([1]).tolist() == [[0.0, row]]


def test_a_step_that_is_left_out_for_its_gradients_takes_its_rows_along():
    p = params(LocalStore(), nonfinite="reject")
    table = zeros(p)
    table.push([1], ones(1, 2))
    p.push_pull({"w": np.full(3, np.nan, "f4")})
    step(p)
    assert table.pull([1]).tolist() == [[0.0, 0.0]]


def test_the_model_is_saved_with_the_rows_that_were_trained(tmp_path):
    environment = contract.read({contract.OUTPUT_DIR: str(tmp_path)})
    job = Job(environment, Alone(environment))
    p = job.params({"w": np.zeros(3, "f4")}, opt=dist.SGD(1.0))
    zeros(p).push([4, 2], ones(2, 2))
    step(p)
    job.save_model("model.npz")
    with np.load(tmp_path / "model.npz") as model:
        assert model["emb.ids"].tolist() == [2, 4]
        assert model["emb.rows"].tolist() == [[-1.0, -1.0]] * 2


# --- Against servers -------------------------------------------------------------------------------------------------
def train(p, batches, opt, trainer=0):
    """Steps on some rows each; return the contents of the table afterwards."""
    table = p.table("emb", 3, opt=opt)
    for number in range(batches):
        rng = np.random.default_rng([number, trainer])
        ids = rng.integers(0, VOCABULARY, 40)
        rows = table.pull(ids)
        table.push(ids, (rows + rng.normal(size=rows.shape) / 10).astype("f4"))
        step(p, n=8)
    return table


RULES = [dist.SGD(0.1), dist.Momentum(0.1), dist.Nesterov(0.1), dist.Adagrad(0.1), dist.Adam(0.01)]


@pytest.mark.parametrize("rule", RULES)
def test_servers_hold_the_same_bits_as_one_process(servers, rule):
    alone = train(params(LocalStore()), 5, rule).all()
    together = train(params(servers(3).store(0)), 5, rule).all()
    assert [array.tobytes() for array in together] == [array.tobytes() for array in alone]


@pytest.mark.parametrize("wire", ["f32", "bf16"])
def test_rows_keep_their_bits_beside_blocks_that_go_over_the_socket(servers, wire):
    attempt = servers(2)
    clients = [Client(server.address, incarnation=100) for server in attempt.running]
    alone = train(params(LocalStore()), 3, dist.Adam(0.01)).all()
    apart = train(params(ServerStore(clients, share=False, wire=wire)), 3, dist.Adam(0.01)).all()
    assert [array.tobytes() for array in apart] == [array.tobytes() for array in alone]


def test_rows_of_two_trainers_are_weighed_by_their_samples(servers, together):
    attempt = servers(2, trainers=2)

    def run(trainer):
        p = params(attempt.store(trainer))
        table = zeros(p, 1)
        table.push([1, 2 + trainer], np.array([[1.0 + 3 * trainer], [8.0]], "f4"))
        step(p, n=[10, 30][trainer])
        rows = table.pull([1, 2, 3])[:, 0].tolist()
        p.leave()
        return rows

    # (10 * 1 + 30 * 4) / 40; and what only one has pushed is weighted by its samples
    assert together(run, 2) == [[-3.25, -2.0, -6.0]] * 2


def test_reading_rows_between_passes_blocks_nobody(servers, together):
    attempt = servers(1, trainers=2)

    def run(trainer):
        p = params(attempt.store(trainer))
        table = zeros(p, 1)
        step(p)
        attempt.meet.wait(60)
        if trainer:
            p.end_pass(0)
            table.pull([1])
            attempt.ahead.wait(60)
        else:
            step(p)
            attempt.ahead.set()
        p.leave()
        return p.version

    assert together(run, 2)[0] == 2


def test_two_runs_give_the_same_bits_whichever_trainer_is_quicker(servers, together):
    def run_once():
        attempt = servers(2, trainers=3)

        def run(trainer):
            p = params(attempt.store(trainer))
            ids, rows = train(p, 4, dist.Adam(0.01), trainer).all()
            attempt.meet.wait(60)
            p.leave()
            return ids.tobytes() + rows.tobytes()

        (outcome,) = set(together(run, 3))
        return outcome

    assert run_once() == run_once()


def test_a_step_that_comes_again_updates_rows_once(servers):
    attempt = servers(1)
    store = attempt.store(0)
    p = params(store)
    table = zeros(p, 1)
    step(p)
    table.push([5], ones(1, 1))
    (client,) = store._clients
    send = client.send

    def send_twice(message):
        send(message)
        client.close()  # the reply is lost, so that the same request is sent once more

    client.send = send_twice
    step(p)
    client.send = send
    assert table.pull([5]).tolist() == [[-1.0]]
    assert p.version == 2


def test_asynchronous_rows_count_as_much_as_their_step(servers):
    attempt = servers(1, trainers=2)
    first, second = (params(attempt.store(trainer), mode="async") for trainer in range(2))
    one, other = zeros(first, 1), zeros(second, 1)
    one.push([1], ones(1, 1))
    step(first, n=10)
    other.push([1], ones(1, 1))
    step(second, n=30)
    # The second one's share of the samples is 30 / 40 of two trainers' steps, and it has missed one update.
    assert one.pull([1]).tolist() == [[-2.5]]


def test_large_pushes_go_in_many_frames(servers):
    p = params(servers(2).store(0))
    table = zeros(p, 64)
    ids = np.arange(20_000)
    table.push(ids, np.repeat(ids[:, None], 64, axis=1).astype("f4"))
    step(p)
    np.testing.assert_array_equal(table.pull(ids)[:, 63], -ids)
    assert table.all()[0].tolist() == ids.tolist()


def test_tables_that_differ_between_trainers_are_an_error_message(servers, together):
    attempt = servers(1, trainers=2)
    started = [None, None]

    def run(trainer):
        started[trainer] = params(attempt.store(trainer), mode="async")

    together(run, 2)
    zeros(started[0], 4).pull([1])
    with pytest.raises(UsageError, match=pattern_of(messages.TABLE_DECLARATIONS_DIFFER, name="'emb'")) as refused:
        zeros(started[1], 8).pull([1])
    assert re.findall(r"\d+", str(refused.value)) == ["4", "8"]


def test_a_server_without_memory_for_more_rows_refuses_the_step_with_a_message(servers, monkeypatch):
    p = params(servers(1).store(0))
    table = zeros(p, 64)
    monkeypatch.setattr(embedding_tables, "headroom", lambda: 0)
    table.push(np.arange(10), ones(10, 64))
    with pytest.raises(UsageError, match=pattern_of(messages.TABLE_MEMORY_FULL)):
        step(p)
    monkeypatch.undo()
    assert p["w"].tolist() == [0.0] * 3


def test_a_server_that_comes_back_has_the_rows_of_its_checkpoint(servers):
    attempt = servers(1)
    store = attempt.store(0)
    p = params(store, mode="async")
    table = zeros(p, 1)
    table.push([1], ones(1, 1))
    step(p)
    (before,) = attempt.running
    pieces = [(shelf.table, piece) for shelf in before.shard.state.tables for piece in shelf.pieces()]
    kept = [(array.copy(),) for array in before.shard.state.parameters]
    after = Shard(0, even_table(1), 1)
    after.restore(before.shard.declaration, 1, kept, {}, 0.0, [(one, copied(piece)) for one, piece in pieces])
    after.election.begin_recovery(1)
    table.push([1], ones(1, 1))
    step(p)
    before.close()
    attempt.running[0] = ShardServer(after)
    attempt.running[0].start()
    attempt.members(0)
    store.redirect(0, attempt.running[0].address, 0)
    table.push([2], ones(1, 1))
    step(p)
    assert p["w"].tolist() == [-3.0] * 3
    assert table.pull([1, 2]).tolist() == [[-1.0], [-1.0]]


def copied(piece):
    return Piece(piece.ids.copy(), piece.updates.copy(), tuple(array.copy() for array in piece.arrays))


def test_rows_travel_with_a_push_that_goes_on_meanwhile(servers):
    p = params(servers(2).store(0))
    table = zeros(p, 1)
    table.push([1, 2, 3], ones(3, 1))
    pending = p.push_async({"w": ones(3)}, n=1)
    assert table.pull([1, 2, 3, 4])[:, 0].tolist() == [-1.0, -1.0, -1.0, 0.0]
    assert pending.result() == 1
