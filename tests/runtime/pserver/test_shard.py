import numpy as np
import pytest

from runtime.messages import training as messages
from runtime.parameters.declaration import Declaration, Tensor
from runtime.parameters.lr_schedules import Steps
from runtime.parameters.messages import FOREVER, Outcome
from runtime.parameters.optimisers import SGD
from runtime.parameters.sharding import even_table
from runtime.pserver.requests import Step, TrainerId
from runtime.pserver.shard import START_SECONDS, Shard
from tests.messages import pattern

TRAINERS = [TrainerId(index, 10 + index) for index in range(4)]
A, B, C, D = TRAINERS


def declaration(mode="sync", lr=1.0):
    return Declaration((Tensor("w", (1,), "<f4"),), SGD(lr), mode)


class Driver:
    """A shard with one number, and its answers by ticket."""

    def __init__(self, *live, mode="sync", lr=1.0, expected=None):
        self.shard = Shard(0, even_table(1), len(live) if expected is None else expected)
        self.answers = {}
        self.tickets = 0
        self.numbers = {}
        self.members(*live)
        wanted = declaration(mode, lr)
        ticket = self.ask(lambda t: self.shard.declare(t, live[0], wanted, 0.0))
        assert self.answers[ticket].outcome is Outcome.INITIALISE
        self.ask(lambda t: self.shard.initialise(t, live[0], wanted.digest, [np.zeros(1, "f4")]))

    def take(self, releases):
        for release in releases:
            self.answers[release.ticket] = release

    def ask(self, event):
        self.tickets += 1
        ticket = self.tickets
        self.take(event(ticket))
        return ticket

    def members(self, *live):
        self.take(self.shard.change_members({trainer.index: trainer.incarnation for trainer in live}))

    def number(self, trainer):
        self.numbers[trainer] = self.numbers.get(trainer, 0) + 1
        return self.numbers[trainer]

    def begin(self, trainer, number=0):
        return self.ask(lambda t: self.shard.begin_pass(t, trainer, self.number(trainer), number))

    def end(self, trainer, number=0):
        return self.ask(lambda t: self.shard.end_pass(t, trainer, self.number(trainer), number))

    def push(self, trainer, gradient, samples=1, base=None, seq=None):
        seq = self.number(trainer) if seq is None else seq
        base = self.shard.version if base is None else base
        step = Step(seq, samples, base, [np.array([gradient], "f4")] if samples else ())
        return self.ask(lambda t: self.shard.push(t, trainer, step))

    def pull(self, trainer):
        return self.ask(lambda t: self.shard.pull(t, trainer))

    def outcome(self, ticket):
        release = self.answers.get(ticket)
        return release.outcome if release else None

    @property
    def value(self):
        return float(self.shard.state.parameters[0][0])


def begun(*live, **options):
    driver = Driver(*live, **options)
    for trainer in live:
        driver.begin(trainer)
    return driver


def test_a_version_waits_for_all_and_weighs_by_samples():
    driver = begun(A, B)
    first = driver.push(A, 1.0, samples=10)
    assert driver.outcome(first) is None
    second = driver.push(B, 4.0, samples=30)
    assert (driver.outcome(first), driver.outcome(second)) == (Outcome.DONE, Outcome.DONE)
    assert driver.value == -3.25
    assert driver.shard.version == 1


def test_two_of_three_make_a_version_and_the_late_one_is_stale():
    driver = begun(A, B, C, mode="m_of_n(2)")
    driver.push(A, 1.0)
    driver.push(B, 3.0)
    late = driver.push(C, 8.0, base=0)
    assert driver.answers[late].outcome is Outcome.STALE
    assert driver.answers[late].version == 1
    assert driver.value == -2.0


def test_asynchronous_divides_the_rate_by_the_staleness():
    driver = begun(A, B, mode="async", lr=0.1)
    for _ in range(4):
        driver.push(A, 0.0)
    driver.push(B, 1.0, base=0)
    assert driver.value == pytest.approx(-0.025)


@pytest.mark.parametrize("mode", ["async", "m_of_n(1)"])
def test_asynchronous_weighs_by_samples(mode):
    driver = begun(A, B, mode=mode)
    driver.push(A, 0.0, samples=10)
    driver.push(B, 1.0, samples=30)
    assert driver.value == -1.5


def test_one_of_n_takes_late_gradients():
    driver = begun(A, B, C, mode="m_of_n(1)")
    driver.push(A, 1.0)
    assert driver.outcome(driver.push(C, 8.0, base=0)) is Outcome.DONE
    assert driver.value == -9.0


def test_two_of_n_make_no_version_alone_until_the_others_are_gone():
    driver = begun(A, B, C, mode="m_of_n(3)")
    tickets = [driver.push(A, 1.0), driver.push(B, 3.0)]
    driver.members(A, B)
    assert [driver.outcome(ticket) for ticket in tickets] == [Outcome.DONE] * 2
    assert driver.value == -2.0


def test_the_late_ones_are_counted():
    driver = begun(A, B, C, mode="m_of_n(2)")
    for trainer, base in ((A, 0), (B, 0), (C, 0)):
        driver.push(trainer, 1.0, base=base)
    assert driver.shard.late == 1


# --- Stale synchronous ----------------------------------------------------------------------------------------------
def test_a_pull_too_far_ahead_waits_for_the_slowest():
    driver = begun(A, B, mode="ssp(1)")
    for trainer in (A, A, A, B):
        driver.push(trainer, 0.0)
    ticket = driver.pull(A)
    assert driver.outcome(ticket) is None
    driver.push(B, 0.0)
    assert driver.outcome(ticket) is Outcome.DONE


def ahead():
    driver = begun(A, B, mode="ssp(1)")
    for _ in range(3):
        driver.push(A, 0.0)
    return driver, driver.pull(A)


def test_a_pull_does_not_wait_for_one_whose_lease_is_gone():
    driver, ticket = ahead()
    driver.members(A)
    assert driver.outcome(ticket) is Outcome.DONE


def test_a_pull_does_not_wait_for_one_that_has_ended_the_pass():
    driver, ticket = ahead()
    driver.end(B)
    assert driver.outcome(ticket) is Outcome.DONE


def test_the_waiting_pull_of_a_lost_trainer_is_fenced():
    driver, ticket = ahead()
    driver.members(B)
    assert driver.outcome(ticket) is Outcome.FENCED


def test_a_step_that_comes_again_does_not_move_the_clock():
    driver = begun(A, B, mode="ssp(1)")
    driver.push(A, 0.0)
    for _ in range(5):
        driver.push(A, 0.0, seq=driver.numbers[A], base=0)
    assert driver.outcome(driver.pull(A)) is Outcome.DONE


def test_trainers_within_the_bound_together_learn_as_fast_as_one():
    driver = begun(A, B, mode="ssp(2)")
    driver.push(A, 0.0)
    driver.push(B, 4.0)
    assert driver.value == -2.0


def test_a_bound_of_nothing_is_synchronous():
    values = []
    for mode in ("sync", "ssp(0)"):
        driver = begun(A, B, mode=mode)
        ticket = driver.push(A, 1.0, samples=10)
        assert driver.outcome(ticket) is None
        driver.push(B, 4.0, samples=30)
        values.append(driver.value)
    assert values == [-3.25, -3.25]


def test_with_a_bound_a_schedule_advances_by_rounds_as_in_synchronous_training():
    driver = begun(A, B, mode="ssp(2)", lr=Steps(1.0, 0.5, 1))
    driver.push(A, 1.0)  # alone so far: it counts fully
    driver.push(B, 2.0)  # rate 0.5 by now, half of the samples
    assert driver.value == -1.5
    assert driver.shard.cut().rounds == 1.5


def test_a_restored_schedule_continues_where_the_checkpoint_was():
    driver = begun(A, B, mode="ssp(2)", lr=Steps(1.0, 0.5, 1))
    driver.push(A, 1.0)
    driver.push(B, 2.0)
    fresh = Shard(0, even_table(1), 2)
    fresh.restore(declaration("ssp(2)", Steps(1.0, 0.5, 1)), 2, [driver.shard.state.parameters], {}, 0.0, rounds=1.5)
    assert fresh.cut().rounds == 1.5


# --- Steps of no samples --------------------------------------------------------------------------------------------
@pytest.mark.parametrize("mode", ["sync", "m_of_n(2)", "outer(5)"])
def test_a_step_of_no_samples_is_waited_for_and_changes_nothing(mode):
    driver = begun(A, B, mode=mode)
    ticket = driver.push(A, 0.0, samples=0)
    assert driver.outcome(ticket) is None
    driver.push(B, 0.0, samples=0)
    assert (driver.outcome(ticket), driver.shard.version, driver.value) == (Outcome.DONE, 1, 0.0)


def test_a_step_of_no_samples_leaves_the_others_their_whole_weight():
    driver = begun(A, B)
    driver.push(A, 0.0, samples=0)
    driver.push(B, 2.0, samples=7)
    assert driver.value == -2.0


def test_a_step_of_no_samples_is_no_update_where_nobody_waits():
    driver = begun(A, B, mode="async")
    assert driver.outcome(driver.push(A, 0.0, samples=0)) is Outcome.DONE
    assert driver.shard.version == 0


# --- Rounds ---------------------------------------------------------------------------------------------------------
def test_a_round_is_averaged_by_samples_and_accelerated():
    driver = begun(A, B, mode="outer(10)")
    driver.push(A, 1.0, samples=10)
    driver.push(B, 4.0, samples=30)
    # v = -0.7 * 3.25; p = 0.9 * v - 0.7 * 3.25
    assert driver.value == pytest.approx(-0.7 * 3.25 * 1.9)


def test_asynchronous_waits_for_nobody():
    driver = Driver(A, B, mode="async")
    assert driver.outcome(driver.push(A, 1.0)) is Outcome.DONE


def test_the_order_of_arrival_changes_no_bit():
    values = []
    for order in ([A, B, C], [C, A, B], [B, C, A]):
        driver = begun(A, B, C)
        for trainer in order:
            driver.push(trainer, [1e8, 1.0, -1e8][trainer.index])
        values.append(driver.value)
    assert len(set(values)) == 1


def test_a_step_that_comes_again_is_applied_once():
    driver = begun(A)
    driver.push(A, 1.0)
    again = driver.push(A, 1.0, seq=driver.numbers[A], base=0)
    assert driver.outcome(again) is Outcome.DUPLICATE
    assert driver.value == -1.0


def test_a_step_that_comes_again_while_it_waits_takes_the_first_ones_place():
    driver = begun(A, B)
    first = driver.push(A, 1.0)
    again = driver.push(A, 1.0, seq=driver.numbers[A])
    driver.push(B, 1.0)
    assert (driver.outcome(first), driver.outcome(again)) == (Outcome.SUPERSEDED, Outcome.DONE)
    assert driver.value == -1.0


def test_one_whose_lease_is_gone_leaves_the_barrier_at_once():
    driver = begun(A, B)
    ticket = driver.push(A, 2.0)
    driver.members(A)
    assert driver.outcome(ticket) is Outcome.DONE
    assert driver.value == -2.0


def test_what_a_lost_trainer_had_pushed_is_dropped():
    driver = begun(A, B)
    lost = driver.push(B, 100.0)
    driver.members(A)
    driver.push(A, 1.0)
    assert driver.outcome(lost) is Outcome.FENCED
    assert driver.value == -1.0


def test_a_replaced_trainer_is_fenced():
    driver = begun(A, B)
    driver.members(A, TrainerId(1, 99))
    assert driver.outcome(driver.push(B, 1.0)) is Outcome.FENCED


def test_a_newcomer_is_not_waited_for_by_the_open_barrier():
    driver = begun(A, B)
    driver.push(A, 1.0)
    driver.members(A, B, C)
    entering = driver.begin(C)
    assert driver.outcome(entering) is None
    driver.push(B, 1.0)
    assert driver.shard.version == 1
    assert driver.outcome(entering) is Outcome.DONE
    driver.push(A, 1.0)
    driver.push(B, 1.0)
    assert driver.shard.version == 1
    driver.push(C, 1.0)
    assert driver.shard.version == 2


def test_a_newcomer_enters_when_those_it_waits_for_are_gone():
    driver = begun(A, B)
    driver.push(A, 1.0)
    driver.members(A, B, C)
    entering = driver.begin(C)
    driver.members(C)
    assert driver.outcome(entering) is Outcome.DONE


def test_a_newcomer_that_has_not_begun_is_not_waited_for():
    driver = begun(A, B)
    driver.members(A, B, C)
    driver.push(A, 1.0)
    driver.push(B, 1.0)
    assert driver.shard.version == 1


def test_the_first_version_waits_for_every_trainer_of_the_launch():
    driver = Driver(A, B)
    driver.begin(A)
    ticket = driver.push(A, 1.0)
    driver.begin(B)
    assert driver.outcome(ticket) is None
    driver.push(B, 1.0)
    assert driver.outcome(ticket) is Outcome.DONE


def test_trainers_of_the_launch_that_never_come_are_given_up():
    driver = Driver(A, expected=2)
    driver.begin(A)
    ticket = driver.push(A, 1.0)
    driver.take(driver.shard.tick(START_SECONDS - 1))
    assert driver.outcome(ticket) is None
    driver.take(driver.shard.tick(START_SECONDS))
    assert driver.outcome(ticket) is Outcome.DONE


def test_one_that_ended_the_pass_is_not_waited_for():
    driver = begun(A, B)
    driver.end(B)
    assert driver.outcome(driver.push(A, 1.0)) is Outcome.DONE


def test_ending_the_pass_releases_waiting_trainers():
    driver = begun(A, B)
    ticket = driver.push(A, 1.0)
    driver.end(B)
    assert driver.outcome(ticket) is Outcome.DONE


def test_the_next_pass_is_entered_when_nobody_pushes_in_the_last_any_more():
    driver = begun(A, B)
    driver.end(A)
    entering = driver.begin(A, 1)
    driver.push(B, 1.0)
    assert driver.outcome(entering) is None
    assert driver.shard.version == 1
    driver.end(B)
    assert driver.outcome(entering) is Outcome.DONE
    assert driver.answers[entering].version == 1


def test_the_next_pass_waits_until_all_have_begun_or_ended_it():
    driver = begun(A, B)
    driver.end(A)
    driver.end(B)
    driver.begin(A, 1)
    ticket = driver.push(A, 1.0)
    assert driver.outcome(ticket) is None
    driver.end(B, 1)
    assert driver.outcome(ticket) is Outcome.DONE


def test_a_pass_can_be_begun_again_for_a_lost_trainers_task():
    driver = begun(A, B)
    driver.end(A)
    driver.members(A)
    driver.begin(A, 0)
    assert driver.outcome(driver.push(A, 1.0)) is Outcome.DONE


def test_one_that_has_left_for_good_is_never_waited_for():
    driver = begun(A, B)
    driver.end(A)
    driver.end(B, FOREVER)
    driver.begin(A, 1)
    assert driver.outcome(driver.push(A, 1.0)) is Outcome.DONE


def test_a_beginning_that_comes_again_is_answered_once_it_may_enter():
    driver = begun(A, B)
    driver.end(A)
    driver.begin(A, 1)
    again = driver.ask(lambda t: driver.shard.begin_pass(t, A, driver.numbers[A], 1))
    assert driver.outcome(again) is None
    driver.end(B)
    assert driver.outcome(again) is Outcome.DONE


def test_a_late_copy_of_a_beginning_changes_nothing():
    driver = begun(A, B)
    seq = driver.numbers[B]
    driver.end(B)
    assert driver.outcome(driver.ask(lambda t: driver.shard.begin_pass(t, B, seq, 0))) is Outcome.DUPLICATE
    assert driver.outcome(driver.push(A, 1.0)) is Outcome.DONE


def test_a_push_outside_of_a_pass_is_refused():
    driver = Driver(A)
    assert driver.outcome(driver.push(A, 1.0)) is Outcome.OUT_OF_PLACE


# --- Declaration and first values -----------------------------------------------------------------------------------
@pytest.fixture
def empty():
    shard = Shard(0, even_table(1), 2)
    shard.change_members({0: 10, 1: 11})
    return shard


def outcomes(releases):
    return [(release.ticket, release.outcome) for release in releases]


def test_the_first_trainer_sends_the_values_and_the_others_wait(empty):
    assert outcomes(empty.declare("b", B, declaration(), 0.0)) == []
    assert outcomes(empty.declare("a", A, declaration(), 0.0)) == [("a", Outcome.INITIALISE)]
    given_ = empty.initialise("i", A, declaration().digest, [np.ones(1, "f4")])
    assert outcomes(given_) == [("i", Outcome.DONE), ("b", Outcome.READY)]
    assert outcomes(empty.declare("c", B, declaration(), 0.0)) == [("c", Outcome.READY)]


def test_a_second_initialisation_is_no_error_and_changes_nothing(empty):
    empty.declare("a", A, declaration(), 0.0)
    empty.initialise("i", A, declaration().digest, [np.ones(1, "f4")])
    again = empty.initialise("j", B, declaration().digest, [np.zeros(1, "f4")])
    assert outcomes(again) == [("j", Outcome.ALREADY)]
    assert empty.state.parameters[0].tolist() == [1.0]


def test_when_the_chosen_trainer_is_lost_the_next_sends_the_values(empty):
    empty.declare("a", A, declaration(), 0.0)
    empty.declare("b", B, declaration(), 0.0)
    assert outcomes(empty.change_members({1: 11})) == [("b", Outcome.INITIALISE)]


def test_another_declaration_is_a_conflict_with_a_message(empty):
    empty.declare("a", A, declaration(), 0.0)
    other = Declaration((Tensor("v", (2,), "<f4"),), SGD(1.0))
    (release,) = empty.declare("b", B, other, 0.0)
    assert release.outcome is Outcome.CONFLICT
    assert "v, w" in release.why


def test_a_push_before_the_first_values_is_refused(empty):
    empty.declare("a", A, declaration(), 0.0)
    (release,) = empty.push("p", A, Step(1, 1, 0, [np.ones(1, "f4")]))
    assert release.outcome is Outcome.NOT_READY


def test_a_declaration_survives_the_wire():
    body = declaration("m_of_n(2)").to_json()
    assert Declaration.from_json(body).digest == declaration("m_of_n(2)").digest


@pytest.mark.parametrize(
    ("field", "value", "refused"),
    [
        ("mode", "sometimes", messages.MODE_UNKNOWN),
        ("tensors", [["w", [1], "<i4"]], messages.PARAMETER_TYPES_UNSUPPORTED),
    ],
)
def test_a_declaration_that_makes_no_sense_is_refused(field, value, refused):
    with pytest.raises(ValueError, match=pattern(refused)):
        Declaration.from_json({**declaration().to_json(), field: value})


def test_a_newcomer_is_not_let_into_the_open_version_by_another_newcomer():
    driver = begun(A, B)
    driver.push(A, 1.0)
    driver.members(A, B, C)
    entering = driver.begin(C)
    driver.members(A, B, C, D)
    assert driver.outcome(entering) is None
    driver.push(B, 1.0)
    assert (driver.shard.version, driver.outcome(entering)) == (1, Outcome.DONE)


def test_a_step_that_waits_for_a_version_made_in_an_earlier_pass_is_answered_stale():
    """B has ended pass 0 and begins it again, for the task of a lost trainer, while A waits in pass 1."""
    driver = begun(A, B)
    for trainer in (A, B):
        driver.end(trainer)
    driver.begin(A, 1)
    waiting = driver.push(A, 8.0)
    assert driver.outcome(waiting) is None
    driver.begin(B)
    driver.push(B, 3.0)
    assert driver.outcome(waiting) is Outcome.STALE
    assert (driver.shard.version, driver.shard.late, driver.value) == (1, 1, -3.0)


def test_a_stale_step_that_comes_again_is_counted_once():
    driver = begun(A, B, C, mode="m_of_n(2)")
    driver.push(A, 1.0)
    driver.push(B, 3.0)
    assert driver.outcome(driver.push(C, 8.0, base=0)) is Outcome.STALE
    again = driver.push(C, 8.0, base=0, seq=driver.numbers[C])
    assert driver.outcome(again) is Outcome.DUPLICATE
    assert driver.shard.late == 1


def test_a_replaced_trainer_gives_no_first_values(empty):
    empty.declare("a", A, declaration(), 0.0)
    empty.change_members({0: 20, 1: 11})
    assert outcomes(empty.initialise("i", A, declaration().digest, [np.ones(1, "f4")])) == [("i", Outcome.FENCED)]
    assert not empty.election.ready
