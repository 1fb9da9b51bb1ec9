"""Each check accepts a good history and finds the violation in a bad one."""

from __future__ import annotations

import json
from itertools import count
from typing import Any

import pytest

from runtime.coordination.base import Committed, Compare, Conflict, Listing, Put, Versioned
from runtime.data.dataset import Chunk
from runtime.master.messages import Task, Trainer
from runtime.master.queue.task_queue import Key, Plan, Saved, Status, TaskQueue
from runtime.master.queue_store import Ledger
from runtime.master.task_table import TaskTable
from tests.faults import invariants
from tests.faults.recording.history import Event


def history(*happenings: tuple[Any, ...]) -> list[Event]:
    """Events of (source, kind, facts), one second after the other."""
    return [Event(float(at), source, kind, dict(*facts)) for at, (source, kind, *facts) in enumerate(happenings)]


def stored(key: str, value: Any, revision: int, create: int = 1) -> tuple[Any, ...]:
    body = None if value is None else json.dumps(value)
    return "store", "stored", {"key": key, "value": body, "revision": revision, "create": create}


# --- I1, I2 ----------------------------------------------------------------------------------------------------------
def entry(file: str, incarnation: int) -> dict[str, Any]:
    facts = {"uuid": file, "file": file, "md5": f"md5 of {file}", "size": 1, "version": 1, "timestamp": 0.0}
    return {**facts, "incarnation": incarnation}


def meta(current: tuple[str, int], previous: tuple[str, int] | None = None) -> dict[str, Any]:
    return {"current": entry(*current), "previous": entry(*previous) if previous else None}


OWNED = [
    stored("members/pserver/0", {}, 1, create=1),
    stored("checkpoints/0", meta(("a", 1)), 2),
    stored("members/pserver/0", None, 3, create=0),
    stored("members/pserver/0", {}, 4, create=4),
    stored("checkpoints/0", meta(("b", 4), ("a", 1)), 5),
]


def test_i1_owners_may_record() -> None:
    assert not invariants.owners_only_record_checkpoints(history(*OWNED))


@pytest.mark.parametrize("writer", [1, 3])
def test_i1_finds_a_record_by_a_process_that_is_not_the_owner(writer: int) -> None:
    late = stored("checkpoints/0", meta(("c", writer), ("b", 4)), 6)
    assert invariants.owners_only_record_checkpoints(history(*OWNED, late))


def test_i1_finds_a_record_of_a_server_that_is_gone() -> None:
    late = stored("checkpoints/0", meta(("c", 1), ("a", 1)), 4)
    assert invariants.owners_only_record_checkpoints(history(*OWNED[:3], late))


DIGESTS = {file: f"md5 of {file}" for file in "abc"}
KEPT = [
    stored("checkpoints/0", meta(("a", 1)), 1),
    stored("checkpoints/0", meta(("b", 1), ("a", 1)), 2),
    stored("checkpoints/0", meta(("c", 1), ("b", 1)), 3),
    ("pserver-0.1", "recorded", {"file": "c", "shard": 0}),
    ("pserver-0.1", "deleted", {"file": "a"}),
]


def test_i2_files_may_go_when_nothing_names_them() -> None:
    assert not invariants.recorded_checkpoints_are_whole(history(*KEPT), DIGESTS)


def test_i2_finds_a_damaged_file() -> None:
    assert invariants.recorded_checkpoints_are_whole(history(*KEPT), {**DIGESTS, "b": ""})


def test_i2_finds_a_file_that_was_never_written() -> None:
    assert invariants.recorded_checkpoints_are_whole(history(*KEPT), {"a": "md5 of a", "b": "md5 of b"})


@pytest.mark.parametrize("file", ["b", "c"])
def test_i2_finds_the_deletion_of_a_file_that_counts(file: str) -> None:
    wrong = ("pserver-0.1", "deleted", {"file": file})
    assert invariants.recorded_checkpoints_are_whole(history(*KEPT, wrong), DIGESTS)


# --- I3 to I6 --------------------------------------------------------------------------------------------------------
TABLE = TaskTable("numbers", tuple((Chunk("file", task * 10, 10, 1),) for task in range(2)))
ONE, OTHER = Trainer(0, 11), Trainer(1, 12)


class Notebook:
    """A store in memory that records its changes as the archive of a job does."""

    def __init__(self) -> None:
        self.entries: dict[str, Versioned] = {}
        self.events: list[Event] = []
        self._revisions = count(1)

    def list(self, prefix: str) -> Listing:
        return Listing(tuple(entry for key, entry in sorted(self.entries.items()) if key.startswith(prefix)), 0)

    def txn(self, compares: list[Compare], operations: list[Put]) -> Committed | Conflict:
        revision = next(self._revisions)
        for put in operations:
            self.entries[put.key] = Versioned(put.key, put.value, revision, revision)
            facts = {"key": put.key, "value": put.value.decode(), "revision": revision, "create": revision}
            self.events.append(Event(float(revision), "store", "stored", facts))
        return Committed(revision)


class Course:
    """The history of a job with two tasks, two passes and two trainers."""

    def __init__(self) -> None:
        self.notebook = Notebook()
        self.ledger = Ledger(self.notebook, "")
        self.queue = TaskQueue.begin(Plan(2, sync=False), TABLE, 0.0)
        self.queue.members([ONE, OTHER], 0.0)
        self.commit()
        self.reports: list[Event] = []
        self.requests = count(1)

    def commit(self) -> None:
        self.ledger.commit(self.queue.take(0.0), self.queue.entries, TABLE)

    def give(self, trainer: Trainer) -> Task:
        task = self.queue.get(trainer, next(self.requests), None, 0.0)
        assert isinstance(task, Task)
        self.commit()
        self.report("got", trainer, task)
        return task

    def finish(self, trainer: Trainer, task: Task) -> None:
        self.queue.done(Key(task.pass_id, task.task_id, task.epoch, trainer), 0.0)
        self.commit()
        self.report("finished", trainer, task)

    def report(self, kind: str, trainer: Trainer, task: Task, **other: int) -> None:
        facts = {"pass_id": task.pass_id, "task": task.task_id, "epoch": task.epoch, **other}
        self.reports.append(Event(float(len(self.reports)), f"{trainer}.1", kind, facts))

    @property
    def states(self) -> list[Saved]:
        return invariants.states_of_the_queue(self.notebook.events)


@pytest.fixture
def course() -> Course:
    course = Course()
    for _pass in range(2):
        mine, yours = course.give(ONE), course.give(OTHER)
        course.finish(ONE, mine)
        course.finish(OTHER, yours)
    return course


def test_the_states_are_those_that_were_committed(course: Course) -> None:
    assert [state.head.pass_id for state in course.states] == [0, 0, 0, 0, 1, 1, 1, 1, 2]


def test_i3_to_i5_let_an_ordinary_course_pass(course: Course) -> None:
    assert not invariants.dispatches_are_unique(course.reports, course.states)
    assert not invariants.passes_end_whole(course.states, 2)
    assert not invariants.acknowledged_is_kept(course.reports, course.states)


def test_i3_finds_a_task_that_two_have(course: Course) -> None:
    first = course.reports[0]
    course.reports.append(Event(9.0, "trainer-1.1", "got", first.facts))
    assert invariants.dispatches_are_unique(course.reports, course.states)


def test_i3_finds_a_task_that_was_given_before_it_was_committed(course: Course) -> None:
    course.report("got", ONE, Task(1, 1, 7, ()))
    assert invariants.dispatches_are_unique(course.reports, course.states)


def test_i3_finds_an_epoch_that_falls(course: Course) -> None:
    states = course.states
    assert invariants.dispatches_are_unique([], [*states, *states[:2]])


def test_i4_finds_a_pass_that_ends_with_a_pending_task(course: Course) -> None:
    states = course.states
    early = [states[3], states[4]._replace(entries=[states[3].entries[0], states[3].entries[1]])]
    assert states[3].entries[1].status is Status.PENDING
    assert invariants.passes_end_whole(early, 2)


def test_i4_finds_a_pass_that_was_left_out(course: Course) -> None:
    states = course.states
    assert invariants.passes_end_whole([states[0], states[-1]], 2)


def test_i4_finds_a_task_that_nobody_had(course: Course) -> None:
    states = course.states
    forgotten = states[4]._replace(entries=[states[0].entries[0], states[4].entries[1]])
    assert invariants.passes_end_whole([states[3], forgotten], 2)


def test_i5_finds_a_finish_that_is_lost(course: Course) -> None:
    states = course.states
    back = states[2]._replace(entries=states[2].entries)
    assert states[3].entries[0].status is Status.DONE
    assert invariants.acknowledged_is_kept(course.reports, [*states[:4], back, *states[4:]])


def test_i5_finds_a_finish_that_was_never_committed(course: Course) -> None:
    course.report("finished", ONE, Task(1, 1, 9, ()))
    assert invariants.acknowledged_is_kept(course.reports, course.states)


def test_i6_finds_a_pause_beyond_the_bound() -> None:
    events = history(*[("trainer-0.1", "finished", {})] * 3)
    assert not invariants.never_stands_still(events, ["finished"], 1.0)
    assert invariants.never_stands_still(events, ["finished"], 0.5)


# --- I7 to I10 -------------------------------------------------------------------------------------------------------
def step(trainer: int, seq: int, base: int = 0, amount: float = 840.0, incarnation: int = 0) -> dict[str, Any]:
    facts = {"trainer": trainer, "seq": seq, "base": base, "amount": amount, "samples": 1}
    return {**facts, "incarnation": incarnation or 11 + trainer}


def applied(version: int, balance: float, *steps: dict[str, Any], source: str = "pserver-0.1") -> tuple[Any, ...]:
    return source, "applied", {"version": version, "of": version, "balance": balance, "steps": list(steps)}


def begun(trainer: int, number: int = 0, kind: str = "begin_pass") -> tuple[Any, ...]:
    return "pserver-0.1", kind, {"trainer": trainer, "incarnation": 11 + trainer, "number": number}


BEGIN = ("pserver-0.1", "initialised", {"version": 0, "balance": 0.0})
LIVE = ("pserver-0.1", "members", {"live": {"0": 11, "1": 12}})
ROUNDS = [
    LIVE,
    BEGIN,
    begun(0),
    begun(1),
    applied(1, -840.0, step(0, 1), step(1, 1)),
    applied(2, -2100.0, step(0, 2, 1, 1680.0), step(1, 2, 1)),
]


def test_i7_versions_rise_and_steps_count_once() -> None:
    assert not invariants.steps_count_once(history(*ROUNDS))


def test_i7_what_a_checkpoint_does_not_hold_may_come_again() -> None:
    back = ("pserver-0.2", "restored", {"version": 1, "balance": -840.0})
    again = applied(2, -2100.0, step(0, 2, 1, 1680.0), step(1, 2, 1), source="pserver-0.2")
    assert not invariants.steps_count_once(history(*ROUNDS, back, again))


@pytest.mark.parametrize(
    "wrong",
    [
        applied(3, 0.0, step(0, 2, 2), step(1, 3, 2)),  # the same step in two versions
        applied(4, 0.0, step(0, 3, 2), step(1, 3, 2)),  # a version left out
        applied(3, 0.0, step(0, 3, 2), step(0, 3, 2)),  # twice in one version
    ],
)
def test_i7_finds_what_counts_twice(wrong: tuple[Any, ...]) -> None:
    assert invariants.steps_count_once(history(*ROUNDS, wrong))


def test_i7_finds_a_step_that_the_checkpoint_held() -> None:
    back = ("pserver-0.2", "restored", {"version": 1, "balance": -840.0})
    again = applied(2, 0.0, step(0, 1, 1), step(1, 2, 1), source="pserver-0.2")
    assert invariants.steps_count_once(history(*ROUNDS, back, again))


def test_i8_rounds_of_all_present_trainers() -> None:
    assert not invariants.rounds_are_of_members(history(*ROUNDS))


def test_i8_a_newcomer_and_a_lost_trainer_are_not_waited_for() -> None:
    gone = ("pserver-0.1", "members", {"live": {"0": 11, "2": 13}})
    course = [*ROUNDS, gone, begun(2), applied(3, -2940.0, step(0, 3, 2))]
    assert not invariants.rounds_are_of_members(history(*course))


@pytest.mark.parametrize(
    "wrong",
    [
        applied(3, 0.0, step(0, 3, 2)),  # without a trainer that was present
        applied(3, 0.0, step(0, 3, 2), step(1, 3, 1)),  # on another base
        applied(3, 0.0, step(0, 3, 2), step(1, 3, 2), step(1, 4, 2)),  # one twice
        applied(3, 0.0, step(0, 3, 2), step(1, 3, 2, incarnation=99)),  # an earlier start
        applied(3, 0.0, step(0, 3, 2), step(1, 3, 2), step(2, 1, 2)),  # one that never came
    ],
)
def test_i8_finds_a_round_that_is_none(wrong: tuple[Any, ...]) -> None:
    assert invariants.rounds_are_of_members(history(*ROUNDS, wrong))


def test_i8_finds_a_round_of_two_passes() -> None:
    course = [*ROUNDS, begun(0, kind="end_pass"), begun(0, 1), applied(3, 0.0, step(0, 3, 2), step(1, 3, 2))]
    assert invariants.rounds_are_of_members(history(*course))


@pytest.mark.parametrize(("quorum", "wrong"), [(1, False), (2, True), (0, True)])
def test_i8_a_quorum_is_enough_and_less_is_not(quorum: int, wrong: bool) -> None:
    first = [LIVE, BEGIN, begun(0), begun(1), applied(1, 0.0, step(0, 1)), applied(2, 0.0, step(0, 2, 1))]
    assert bool(invariants.rounds_are_of_members(history(*first), quorum)) is wrong


def test_i8_finds_more_than_a_quorum() -> None:
    assert invariants.rounds_are_of_members(history(*ROUNDS), quorum=1)


def pull(trainer: int) -> tuple[Any, ...]:
    return "pserver-0.1", "let pull", {"trainer": trainer}


AHEAD = [LIVE, begun(0), begun(1), applied(1, 0.0, step(0, 1)), pull(0), applied(2, 0.0, step(0, 2, 1))]


def test_i9_within_the_bound_and_after_the_slowest_has_left() -> None:
    left = ("pserver-0.1", "members", {"live": {"0": 11}})
    assert not invariants.nobody_runs_ahead(history(*AHEAD, left, pull(0)), 1)


def test_i9_finds_a_pull_by_a_trainer_too_far_ahead() -> None:
    assert invariants.nobody_runs_ahead(history(*AHEAD, pull(0)), 1)


def pulled(version: int, balance: float, **more: Any) -> tuple[Any, ...]:
    return "trainer-0.1", "pulled", {"version": version, "balances": [balance], "even": True, **more}


def test_i10_the_mean_of_a_round_is_withdrawn() -> None:
    assert not invariants.accounts_balance(history(*ROUNDS, pulled(2, -2100.0)), "sync")


def test_i10_finds_a_step_that_was_lost_on_the_way() -> None:
    course = [*ROUNDS[:-1], applied(2, -1680.0, step(0, 2, 1, 1680.0), step(1, 2, 1))]
    assert invariants.accounts_balance(history(*course), "sync")


def test_i10_finds_a_pull_that_no_version_had() -> None:
    assert invariants.accounts_balance(history(*ROUNDS, pulled(2, -840.0)), "sync")


@pytest.mark.parametrize(("kind", "wrong"), [("pulled", True), ("joined", False)])
def test_i10_of_a_newcomer_only_the_first_servers_version_is_known(kind: str, wrong: bool) -> None:
    other = [("pserver-1.1", *rest) for _trainer, *rest in ROUNDS]
    seen = ("trainer-2.1", kind, {"version": 1, "balances": [-840.0, -2100.0], "even": True})
    assert bool(invariants.accounts_balance(history(*ROUNDS, *other, seen), "sync")) is wrong


def test_i10_finds_another_balance_after_a_restart() -> None:
    back = ("pserver-0.2", "restored", {"version": 1, "balance": -2100.0})
    assert invariants.accounts_balance(history(*ROUNDS, back), "sync")


ALONE = [
    LIVE,
    BEGIN,
    applied(1, -840.0, step(0, 1)),
    applied(2, -1680.0, step(1, 1, 1)),
    applied(3, -2100.0, step(0, 2, 0)),  # two versions old: half
]


def test_i10_alone_a_step_counts_less_the_older_it_is() -> None:
    assert not invariants.accounts_balance(history(*ALONE, pulled(3, -2100.0)), "async")
    whole = [*ALONE[:-1], applied(3, -2520.0, step(0, 2, 0))]
    assert invariants.accounts_balance(history(*whole), "async")


def test_i10_within_a_bound_all_share() -> None:
    course = [*ALONE[:3], applied(2, -1260.0, step(1, 1, 1))]
    assert not invariants.accounts_balance(history(*course), "ssp")
    assert invariants.accounts_balance(history(*ALONE[:4]), "ssp")


def test_i10_allows_float32_its_last_bit_where_a_share_is_no_whole_number() -> None:
    base = [LIVE, BEGIN, *(applied(n, -840.0 * n, step(0, n, n - 1)) for n in range(1, 12))]
    exact = -9240.0 - 840.0 / 11
    near, far = float(f"{exact:.4f}"), exact + 0.01
    assert not invariants.accounts_balance(history(*base, applied(12, near, step(0, 12, 0))), "async")
    assert invariants.accounts_balance(history(*base, applied(12, far, step(0, 12, 0))), "async")


# --- I11, I12 --------------------------------------------------------------------------------------------------------
def answered(number: int, server: int, incarnation: int) -> tuple[Any, ...]:
    return "trainer-0.1", "answered", {"step": number, "server": server, "incarnation": incarnation}


def test_i11_finds_two_incarnations_in_one_step() -> None:
    course = [answered(1, 0, 5), answered(1, 1, 6), answered(2, 0, 7), answered(2, 1, 6)]
    assert not invariants.steps_meet_one_incarnation(history(*course))
    assert invariants.steps_meet_one_incarnation(history(*course, answered(2, 0, 5)))


def ended(source: str, digest: str, even: bool = True) -> tuple[Any, ...]:
    return source, "ended", {"version": 1, "balances": [0.0], "digest": digest, "even": even}


def test_i12_the_last_event_of_each_trainer_counts() -> None:
    course = [ended("trainer-0.1", "old"), ended("trainer-1.1", "new"), ended("trainer-0.2", "new")]
    assert not invariants.all_agree_in_the_end(history(*course))


@pytest.mark.parametrize("wrong", [ended("trainer-1.2", "other"), ended("trainer-0.2", "new", even=False)])
def test_i12_finds_trainers_that_differ_and_torn_pulls(wrong: tuple[Any, ...]) -> None:
    assert invariants.all_agree_in_the_end(history(ended("trainer-0.1", "new"), wrong))


def test_i12_finds_that_nobody_ended() -> None:
    assert invariants.all_agree_in_the_end([])
