"""Recovery of a shard that lost its values: their choice, and that every step counts exactly once."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from runtime.messages import training as messages
from runtime.parameters.declaration import Declaration, Tensor
from runtime.parameters.messages import NOTHING, Offer, Outcome, Standing
from runtime.parameters.optimisers import SGD, Adam, Momentum
from runtime.parameters.sharding import even_table
from runtime.pserver.recovery import OFFER_SECONDS, Choice, Comeback, Recovered
from runtime.pserver.requests import Step, TrainerId
from runtime.pserver.shard import Shard
from tests.messages import mentions
from tests.properties import examples

A, B, C = (TrainerId(index, 10 + index) for index in range(3))
HELD_7 = Offer(held=7, seen=7, seq=9, begun=0)


def decide(*offers, stored=NOTHING, live=None, strict=True, late=False):
    """The choice and the giver when trainers 0, 1 ... have made these offers at time 0."""
    comeback = Comeback(stored)
    for index, offer in enumerate(offers):
        comeback.take(index, offer, 0.0)
    comeback.tick(OFFER_SECONDS if late else OFFER_SECONDS - 0.1)
    return comeback.choose(range(len(offers)) if live is None else live, strict), comeback.giver


def test_the_newest_values_win_and_of_equals_the_lowest_trainer():
    assert decide(Offer(6, 6), HELD_7, HELD_7) == (Choice.TRAINER, 1)


def test_a_trainer_that_has_not_reported_yet_is_awaited_for_a_limited_time():
    assert decide(HELD_7, live=[0, 1]) == (Choice.WAIT, None)
    assert decide(HELD_7, live=[0, 1], late=True) == (Choice.TRAINER, 0)


def test_nothing_is_decided_without_live_trainers():
    assert decide(live=[], stored=5, late=True) == (Choice.WAIT, None)


def test_a_checkpoint_as_new_as_what_trainers_hold_is_better_for_it_has_the_optimisers_state():
    assert decide(HELD_7, stored=7) == (Choice.CHECKPOINT, None)


def test_values_that_are_torn_between_two_versions_are_not_taken():
    torn = Offer(held=NOTHING, seen=7)
    assert decide(torn, HELD_7) == (Choice.TRAINER, 1)
    assert decide(torn, stored=6) == (Choice.LOST, None)


def test_in_sync_mode_older_values_than_trainers_have_seen_are_of_no_use():
    pushed_only = Offer(held=3, seen=7)
    assert decide(pushed_only, stored=5) == (Choice.LOST, None)
    assert decide(pushed_only, stored=5, strict=False) == (Choice.CHECKPOINT, None)


@pytest.mark.parametrize(("strict", "choice"), [(True, Choice.LOST), (False, Choice.CHECKPOINT)])
def test_where_all_trainers_are_new_only_servers_that_need_not_agree_go_on_alone(strict, choice):
    assert decide(Offer(), Offer(), stored=5, strict=strict) == (choice, None)


def test_without_trainer_and_checkpoint_nothing_comes_back():
    assert decide(Offer(), strict=False) == (Choice.LOST, None)


def test_the_next_best_is_asked_where_the_best_is_gone():
    comeback = Comeback()
    comeback.take(0, HELD_7, 0.0)
    comeback.take(1, Offer(6, 6), 0.0)
    assert (comeback.choose([0, 1], False), comeback.giver) == (Choice.TRAINER, 0)
    comeback.forget(0)
    assert (comeback.choose([1], False), comeback.giver) == (Choice.TRAINER, 1)


def test_a_standing_travels_as_json():
    standing = Standing({10: 4, 11: 2}, {0: 3}, {1: 16}, 2.5)
    assert Standing.from_json(standing.to_json()) == standing


# --- The shard -------------------------------------------------------------------------------------------------------
def declaration(mode="sync", optimiser=None):
    return Declaration((Tensor("w", (1,), "<f4"),), optimiser or SGD(1.0), mode)


class Attempt:
    """A shard and its trainers, which pull after every push. A crash replaces the shard."""

    def __init__(self, *trainers, mode="sync"):
        self.declaration = declaration(mode)
        self.trainers = trainers
        self.values = {trainer: (np.zeros(1, "f4"), 0, Standing()) for trainer in trainers}
        self.seqs = dict.fromkeys(trainers, 0)
        self.answers = {}
        self.shard = Shard(0, even_table(1), len(trainers))
        self.join()
        self.ask(lambda t: self.shard.declare(t, trainers[0], self.declaration, 0.0))
        self.ask(lambda t: self.shard.initialise(t, trainers[0], self.declaration.digest, [np.zeros(1, "f4")]))
        for trainer in trainers:
            self.begin(trainer)

    def join(self):
        self.take(self.shard.change_members({trainer.index: trainer.incarnation for trainer in self.trainers}))

    def take(self, releases):
        self.answers |= {release.ticket: release for release in releases}

    def ask(self, event):
        ticket = object()
        self.take(event(ticket))
        return ticket

    def begin(self, trainer):
        self.seqs[trainer] += 1
        self.ask(lambda t: self.shard.begin_pass(t, trainer, self.seqs[trainer], 0))

    def push(self, trainer, gradient, again=False):
        """Send a step; ``again`` with the number of the last one."""
        self.seqs[trainer] += not again
        step = Step(self.seqs[trainer], 1, self.values[trainer][1], [np.array([gradient], "f4")])
        return self.ask(lambda t: self.shard.push(t, trainer, step))

    def pull(self, trainer):
        standing = self.shard.standing() or Standing()
        self.values[trainer] = (self.shard.state.parameters[0].copy(), self.shard.version, standing)

    def crash(self, stored=NOTHING):
        self.shard = Shard(0, even_table(1), len(self.trainers))
        self.shard.election.begin_recovery(stored)
        self.answers = {}
        self.join()

    def offer(self, trainer, unanswered=False):
        _values, version, _standing = self.values[trainer]
        place = Offer(version, version, self.seqs[trainer] - unanswered, begun=0)
        ticket = self.ask(lambda t: self.shard.declare(t, trainer, self.declaration, 0.0, place))
        self.give()
        return ticket

    def give(self):
        for ticket, release in list(self.answers.items()):
            if release.outcome is Outcome.RESEED:
                del self.answers[ticket]
                giver = self.trainers[next(i for i, trainer in enumerate(self.trainers) if trainer.index == self.giver)]
                values, version, standing = self.values[giver]
                self.ask(lambda t, g=giver, v=version, x=values, s=standing: self.shard.reseed(t, g, v, [x], s))

    @property
    def giver(self):
        return self.shard.election.giver


def test_a_version_is_made_once_although_its_steps_are_sent_again():
    attempt = Attempt(A, B)
    attempt.push(A, 1.0)
    attempt.push(B, 3.0)  # makes version 1, which only A receives
    attempt.pull(A)
    attempt.crash()
    attempt.offer(A)
    attempt.offer(B, unanswered=True)
    ticket = attempt.push(B, 3.0, again=True)
    assert attempt.answers[ticket].outcome is Outcome.STALE
    assert (attempt.shard.version, attempt.shard.state.parameters[0].tolist()) == (1, [-2.0])


def test_a_version_that_no_trainer_received_is_made_again_from_the_same_steps():
    attempt = Attempt(A, B)
    attempt.push(A, 1.0)
    attempt.push(B, 3.0)
    attempt.crash()
    for trainer in (A, B):
        attempt.offer(trainer, unanswered=True)
    attempt.push(A, 1.0, again=True)
    assert attempt.shard.version == 0  # B is in the pass, as it has reported, and is waited for
    attempt.push(B, 3.0, again=True)
    assert (attempt.shard.version, attempt.shard.state.parameters[0].tolist()) == (1, [-2.0])


def test_an_unreported_trainer_is_waited_for_before_the_next_version():
    attempt = Attempt(A, B)
    attempt.crash()
    attempt.offer(A)
    for now in (OFFER_SECONDS, OFFER_SECONDS):
        attempt.take(attempt.shard.tick(now))
    attempt.give()
    assert attempt.shard.election.ready
    attempt.push(A, 1.0)
    assert attempt.shard.version == 0
    attempt.offer(B)
    attempt.push(B, 3.0)
    assert attempt.shard.version == 1


def test_an_offer_that_comes_too_late_with_a_newer_version_ends_the_attempt_instead_of_training_on_other_values():
    attempt = Attempt(A, B)
    for trainer in (A, B):
        attempt.push(trainer, 1.0)
    attempt.pull(B)  # the server is killed before A has its answer
    attempt.crash()
    attempt.offer(A, unanswered=True)
    attempt.take(attempt.shard.tick(OFFER_SECONDS))
    attempt.give()
    assert (attempt.shard.election.ready, attempt.shard.version) == (True, 0)
    late = attempt.offer(B)
    assert attempt.answers[late].outcome is Outcome.LOST
    assert mentions(attempt.shard.election.lost, messages.RESUMES_FROM_COMMON_STATE)


def test_a_step_reported_as_answered_is_a_duplicate():
    attempt = Attempt(A)
    attempt.push(A, 1.0)
    attempt.pull(A)
    attempt.crash()
    attempt.offer(A)
    again = attempt.push(A, 1.0, again=True)
    assert attempt.answers[again].outcome is Outcome.DUPLICATE
    assert (attempt.shard.version, attempt.shard.state.parameters[0].tolist()) == (1, [-1.0])


def test_only_the_chosen_trainer_restores_values():
    shard = Shard(0, even_table(1), 2)
    shard.election.begin_recovery(NOTHING)
    shard.change_members({trainer.index: trainer.incarnation for trainer in (A, B)})
    shard.declare("older", B, declaration(), 0.0, Offer(6, 6, 2, begun=0))
    [asked] = shard.declare("newer", A, declaration(), 0.0, HELD_7)
    assert (asked.ticket, asked.outcome) == ("newer", Outcome.RESEED)
    [release] = shard.reseed("values", B, 6, [np.array([5.0], "f4")], Standing())
    assert release.outcome is Outcome.ALREADY
    assert (shard.election.ready, shard.version, shard.state.parameters[0].tolist()) == (False, 0, [0.0])


def test_a_shard_without_values_that_is_offered_some_takes_them():
    attempt = Attempt(A)
    attempt.push(A, 1.0)
    attempt.pull(A)
    attempt.shard = Shard(0, even_table(1), 1)  # it has no information about an earlier process
    attempt.join()
    attempt.offer(A)
    assert (attempt.shard.version, attempt.shard.state.parameters[0].tolist()) == (1, [-1.0])


def test_the_optimiser_goes_on_from_its_checkpoint():
    shard = Shard(0, even_table(1), 1)
    wanted = declaration(optimiser=Momentum(1.0, 0.5))
    shard.restore(wanted, 3, [(np.array([5.0], "f4"), np.array([2.0], "f4"))], {}, 0.0)
    shard.election.begin_recovery(3)
    shard.change_members({0: 10})
    shard.declare("offer", A, wanted, 0.0, Offer(4, 4, 1, begun=0))
    shard.reseed("values", A, 4, [np.array([7.0], "f4")], Standing())
    shard.push("push", A, Step(2, 1, 4, [np.array([1.0], "f4")]))
    assert shard.state.parameters[0].tolist() == [7.0 + 0.5 * 2.0 - 1.0]


@pytest.mark.parametrize("mode", ["async", "sync"])
def test_requests_in_the_checkpoint_stay_known_after_a_trainer_gave_newer_values(mode):
    """A is absent while B sends its values, which do not contain A's requests."""
    shard = Shard(0, even_table(1), 2)
    wanted = declaration(mode)
    shard.restore(wanted, 3, [(np.array([5.0], "f4"),)], {A.incarnation: 6}, 0.0)
    shard.election.begin_recovery(3)
    shard.change_members({B.index: B.incarnation})
    shard.declare("offer", B, wanted, 0.0, Offer(4, 4, 2, begun=0))
    shard.reseed("values", B, 4, [np.array([7.0], "f4")], Standing({B.incarnation: 2}))
    shard.change_members({trainer.index: trainer.incarnation for trainer in (A, B)})
    [release] = shard.push("late", A, Step(6, 1, 3, [np.array([1.0], "f4")]))
    assert release.outcome is Outcome.DUPLICATE
    assert shard.state.parameters[0].tolist() == [7.0]


def test_a_server_that_cannot_recover_reports_why():
    shard = Shard(0, even_table(1), 1)
    shard.election.begin_recovery(NOTHING)
    shard.change_members({0: 10})
    [release] = shard.declare("declare", A, declaration(), 0.0)
    assert (release.outcome, release.why) == (Outcome.LOST, shard.election.lost)
    assert mentions(shard.election.lost, messages.PSERVER_VALUES_LOST, server=0)


@pytest.mark.invariant("A step counts once, however often its pserver is killed.")
@settings(max_examples=examples(200), deadline=None)
@given(st.lists(st.tuples(st.integers(0, 2), st.booleans(), st.booleans()), max_size=30))
def test_each_step_counts_once_however_often_the_server_of_an_asynchronous_job_restarts(steps):
    """Each entry: the trainer that steps, whether its answer (with the values) arrives, whether the server is
    killed.
    """
    attempt = Attempt(A, B, C, mode="ssp(100)")
    for index, answered, is_killed in steps:
        trainer = attempt.trainers[index]
        attempt.push(trainer, 1.0)
        if answered:
            attempt.pull(trainer)
        if is_killed or not answered:
            newest = max(version for _values, version, _standing in attempt.values.values())
            lost = attempt.shard.version - newest
            held = next(values for values, version, _ in attempt.values.values() if version == newest)
            attempt.crash()
            for other in attempt.trainers:
                attempt.offer(other, unanswered=other is trainer and not answered)
            assert (attempt.shard.version, attempt.shard.state.parameters[0][0]) == (newest, held[0])
            if not answered:
                attempt.push(trainer, 1.0, again=True)
                attempt.pull(trainer)
            assert lost <= (not answered)
    assert attempt.shard.version == len(steps)


# --- Messages ----------------------------------------------------------------------------------------------
FROM_START = messages.OPTIMISER_RESET()
GOES_ON = messages.OPTIMISER_RESUMES(version=5)
ROWS = messages.TABLE_ROWS_FROM_CHECKPOINT(version=5)
LARGER = messages.ADAM_STEPS_LARGER()
FROM_CHECKPOINT = messages.PSERVER_RECOVERED_FROM_CHECKPOINT(server=0, seconds="1.2", version=7)
FROM_TRAINER = messages.PSERVER_RECOVERED_FROM_TRAINER(server=0, seconds="1.2", version=7, trainer="trainer-1")


@pytest.mark.parametrize(
    ("recovered", "optimiser", "tables", "expected"),
    [
        (Recovered(7, None, 7), Adam(0.1), False, FROM_CHECKPOINT),
        (Recovered(7, 1, NOTHING), SGD(0.1), False, FROM_TRAINER),
        (Recovered(7, 1, NOTHING), Momentum(0.1), False, f"{FROM_TRAINER} {FROM_START}"),
        (Recovered(7, 1, NOTHING), Adam(0.1), False, f"{FROM_TRAINER} {FROM_START} {LARGER}"),
        (
            Recovered(7, 1, 5),
            Adam(0.1),
            True,
            f"{FROM_TRAINER} {GOES_ON} {ROWS}",
        ),
    ],
)
def test_the_message_lists_what_was_restored_and_what_was_not(recovered, optimiser, tables, expected):
    assert recovered.describe(0, 1.23, optimiser, tables) == expected


def test_steps_of_an_adam_that_has_forgotten_are_larger_but_not_by_much():
    """The figure in the message: far from version 0, with a constant gradient."""
    rule, value, gradient = Adam(1.0), np.zeros(1, "f4"), np.ones(1, "f4")
    state, steps = rule.states([value])[0], []
    for version in range(100_000, 100_500):
        before = float(value[0])
        rule.apply(value, gradient, state, version, 1.0)
        steps.append(before - float(value[0]))
    assert 3.0 < steps[0] < 3.5
    assert 6.0 < max(steps) < 7.0
