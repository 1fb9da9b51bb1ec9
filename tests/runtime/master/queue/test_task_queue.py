"""Rules of the task queue: the transitions M1-M14, and the holes A-I of an earlier design as regressions."""

from __future__ import annotations

import pytest

from jobs.messages import jobs as job_messages
from runtime.data.dataset import Chunk
from runtime.master.messages import JobDone, PassEnd, Task, Trainer, Unread, Wait
from runtime.master.queue.task_queue import TaskQueue
from runtime.master.task_table import TaskTable
from runtime.master.types import Key, Plan, Saved, Status, Verdict
from runtime.messages import data as data_messages
from runtime.messages import training as training_messages
from tests.messages import mentions

X, Y, Z = Trainer(0, 11), Trainer(1, 12), Trainer(2, 13)


def table_of(tasks: int, records: int = 10) -> TaskTable:
    return TaskTable(
        "public/test", tuple((Chunk("/data/train.recordio", i * 100, 100, records),) for i in range(tasks))
    )


def queue_of(tasks: int, *live: Trainer, passes: int = 2, sync: bool = False, **options: float) -> TaskQueue:
    options.setdefault("trainers", max(1, len(live)))
    queue = TaskQueue.begin(Plan(passes, sync, **options), table_of(tasks), now=0.0)
    if live:
        queue.members(live, 0.0)
    return queue


class Asker:
    """A trainer's side of the queue: numbers its requests and stores the last pass whose end it received."""

    def __init__(self, queue: TaskQueue, trainer: Trainer) -> None:
        self.queue, self.trainer = queue, trainer
        self.request, self.ended = 0, None

    def get(self, now: float = 0.0) -> object:
        self.request += 1
        answer = self.queue.get(self.trainer, self.request, self.ended, now)
        if isinstance(answer, Task):
            self.ended = answer.pass_id - 1
        elif isinstance(answer, PassEnd):
            self.ended = answer.pass_id
        return answer

    def key(self, task: Task) -> Key:
        return Key(task.pass_id, task.task_id, task.epoch, self.trainer)

    def done(self, task: Task, now: float = 0.0) -> Verdict:
        return self.queue.done(self.key(task), now)

    def fail(self, task: Task, now: float = 0.0) -> Verdict:
        return self.queue.fail(self.key(task), "it raised", now)

    def cannot_read(self, task: Task, unread: Unread, now: float = 0.0) -> Verdict:
        return self.queue.cannot_read(
            self.key(task),
            data_messages.FILE_UNREADABLE(file="a.recordio", error=job_messages.GONE(replica="it")),
            unread,
            now,
        )

    def work(self) -> list[tuple[int, int]]:
        """Do every available task; return (pass, task) in order."""
        seen = []
        while not isinstance(answer := self.get(), Wait | JobDone):
            if isinstance(answer, Task):
                seen.append((answer.pass_id, answer.task_id))
                assert self.done(answer) is Verdict.OK
        return seen


def texts(queue: TaskQueue) -> str:
    return "\n".join(happening.text for happening in queue.happenings)


class TestPassLines:
    def test_a_pass_is_reported_once_at_its_end_with_its_pace(self):
        queue = queue_of(3, X, passes=1)
        x = Asker(queue, X)
        for task in [x.get() for _ in range(3)]:
            x.done(task, 2.0)
        assert (
            training_messages.PASS_DONE_DETAILS(
                number=1,
                passes=1,
                seconds="2.0",
                details=training_messages.TRAINER_COUNT_ONE(count="30 records, 15 records/s, 1"),
            )
            in texts(queue).splitlines()
        )

    def test_records_of_discarded_tasks_do_not_count(self):
        queue = queue_of(2, X, passes=1, failure_cap=0)
        x = Asker(queue, X)
        a, b = x.get(), x.get()
        x.fail(a, 1.0)
        x.done(b, 1.0)
        assert mentions(texts(queue), training_messages.TASK_DISCARDED)

    def test_only_passes_between_the_first_and_the_last_may_be_left_out_of_the_log(self):
        queue = queue_of(1, X, passes=4)
        Asker(queue, X).work()
        assert [it.frequent for it in queue.happenings if it.kind == "pass"] == [False, True, True, False]


class TestTransitions:
    def test_m1_a_pass_ends_also_when_its_last_task_is_discarded(self):
        queue = queue_of(2, X, failure_cap=0)
        x = Asker(queue, X)
        a, b = x.get(), x.get()
        x.done(a)
        x.fail(b)
        assert queue.pass_id == 1
        assert mentions(texts(queue), training_messages.TASK_DISCARDED, task=1, count=1) and "10-19" in texts(queue)
        assert x.get() == PassEnd(0)
        assert x.get().pass_id == 1

    @pytest.mark.invariant("The task of a lost trainer returns to the queue.")
    def test_m2_the_task_of_a_lost_trainer_goes_to_the_waiting_trainer(self):
        queue = queue_of(2, X, Y)
        x, y = Asker(queue, X), Asker(queue, Y)
        lost = x.get()
        y.done(y.get())
        assert isinstance(y.get(), Wait)
        queue.members([Y], 1.0)
        again = y.get()
        assert (again.task_id, again.epoch) == (lost.task_id, 2)
        assert queue.entries[lost.task_id].failures == 1
        assert training_messages.TRAINER_LEFT_TASK_RETURNED(trainer="trainer-0", task=lost.task_id) in texts(queue)

    def test_m3_a_report_of_an_earlier_pass_is_stale(self):
        queue = queue_of(1, X, Y, Z)
        x, y, z = (Asker(queue, trainer) for trainer in (X, Y, Z))
        late = x.get()
        queue.tick(60.0)
        y.done(y.get(60.0), 61.0)
        fresh = z.get(61.0)
        assert (fresh.pass_id, fresh.epoch) == (1, 3)
        assert x.done(late, 62.0) is Verdict.STALE
        assert queue.entries[0].status is Status.PENDING

    def test_m4_a_job_whose_every_task_is_discarded_fails_and_names_the_records(self):
        queue = queue_of(1, X, failure_cap=0)
        x = Asker(queue, X)
        x.fail(x.get())
        assert not queue.open
        assert "records 0-9 (train.recordio) of public/test" in queue.failed

    def test_m5_a_commit_that_fails_changes_nothing(self):
        queue = queue_of(2, X)
        queue.take(0.0)
        before = Saved(queue.head(0.0), list(queue.entries), queue.assigner.assignment())
        lost = Asker(queue, X).get()
        queue = TaskQueue.resume(queue.plan, queue.table, before)
        assert queue.count(Status.TODO) == 2
        assert Asker(queue, X).get() == lost

    def test_m6_a_task_that_fails_on_one_trainer_goes_to_others_before_it_is_discarded(self):
        queue = queue_of(1, X, Y)
        x, y = Asker(queue, X), Asker(queue, Y)
        x.fail(x.get())
        x.fail(x.get())
        assert isinstance(x.get(), Wait)
        y.fail(y.get())
        assert queue.entries[0].blamed == (0, 1)
        y.fail(y.get())
        assert queue.failed

    def test_m6_failures_of_one_trainer_alone_do_not_discard_while_two_are_alive(self):
        queue = queue_of(1, X, Y, failure_cap=0)
        x = Asker(queue, X)
        x.fail(x.get())
        x.fail(x.get())
        assert queue.entries[0].status is Status.TODO

    def test_m6_a_lone_trainer_is_blame_enough(self):
        queue = queue_of(1, X)
        x = Asker(queue, X)
        for _ in range(4):
            assert not queue.failed
            x.fail(x.get())
        assert queue.failed

    def test_m7_a_released_task_goes_to_the_head_without_blame(self):
        queue = queue_of(3, X)
        x = Asker(queue, X)
        first = x.get()
        assert queue.release(x.key(first), 0.0) is Verdict.OK
        again = x.get()
        assert (again.task_id, again.epoch) == (first.task_id, first.epoch + 1)
        assert queue.entries[first.task_id].failures == 0

    def test_m8_done_twice_is_done(self):
        queue = queue_of(2, X)
        x = Asker(queue, X)
        task = x.get()
        assert [x.done(task), x.done(task)] == [Verdict.OK, Verdict.OK]

    def test_m8_done_again_after_the_pass_has_ended_is_done(self):
        queue = queue_of(1, X)
        x = Asker(queue, X)
        task = x.get()
        assert [x.done(task), x.done(task)] == [Verdict.OK, Verdict.OK]
        assert queue.pass_id == 1
        assert queue.count(Status.TODO) == 1

    def test_m9_an_extended_task_is_overdue_later_but_not_for_ever(self):
        queue = queue_of(1, X)
        x = Asker(queue, X)
        task = x.get(0.0)
        for now in (50.0, 100.0, 150.0, 170.0):
            queue.extend(x.key(task), now)
            queue.tick(now)
            assert queue.entries[0].status is Status.PENDING
        queue.tick(180.0)
        assert queue.entries[0].status is Status.TODO

    def test_m10_a_request_that_is_asked_again_gets_the_same_task(self):
        queue = queue_of(3, X)
        first = queue.get(X, 7, None, 0.0)
        assert queue.get(X, 7, None, 1.0) == first
        assert queue.get(X, 8, None, 1.0) != first

    def test_m12_one_trainer_at_a_time_saves_the_model(self):
        queue = queue_of(1, X, Y)
        assert queue.save_request(X, 30.0, 0.0)
        assert not queue.save_request(Y, 30.0, 1.0)
        assert queue.save_request(X, 30.0, 20.0)
        assert not queue.save_request(Y, 30.0, 40.0)  # the first deadline has passed
        queue.members([Y], 41.0)
        assert queue.save_request(Y, 30.0, 41.0)

    def test_m12_a_trainer_that_is_no_member_does_not_save(self):
        queue = queue_of(1, X)
        assert not queue.save_request(Y, 30.0, 0.0)
        assert queue.save_request(X, 30.0, 0.0)

    def test_m12_the_right_to_save_runs_out(self):
        queue = queue_of(1, X, Y)
        queue.save_request(X, 30.0, 0.0)
        assert queue.save_request(Y, 30.0, 30.0)

    def test_m13_a_job_without_trainers_idles_and_then_finishes(self):
        queue = queue_of(2, trainers=1)
        for now in range(0, 3600, 60):
            queue.tick(float(now))
        assert (queue.pass_id, queue.board.changed) == (-1, set())
        assert queue.next_deadline(3600.0) is None
        queue.members([X], 3600.0)
        assert Asker(queue, X).work() == [(0, 0), (0, 1), (1, 0), (1, 1)]
        assert queue.finished

    def test_m14_a_dataset_without_records_is_done_at_once_with_a_warning(self):
        queue = queue_of(0, X)
        assert Asker(queue, X).get() == JobDone()
        assert mentions(texts(queue), training_messages.DATASET_EMPTY)


class TestDataThatCannotBeRead:
    """A file is gone or changed in mid-run."""

    @pytest.mark.invariant(
        "A file that disappears during a job ends the job with the file's name and blames no record."
    )
    def test_two_trainers_that_cannot_read_it_end_the_job_with_the_file_and_why(self):
        queue = queue_of(2, X, Y, quarantine=True)
        x, y = Asker(queue, X), Asker(queue, Y)
        gone = x.get()
        y.done(y.get())
        x.cannot_read(gone, Unread.FAIL_JOB)
        for asker in (x, y):
            assert asker.cannot_read(asker.get(), Unread.FAIL_JOB) is Verdict.OK
        assert queue.failed == (
            training_messages.DATASET_UNREADABLE(
                records=training_messages.RECORD_RANGE(first=0, last=9, file="train.recordio"),
                dataset="public/test",
                why=data_messages.FILE_UNREADABLE(file="a.recordio", error=job_messages.GONE(replica="it")),
            )
        )
        assert queue.board.quarantine == ()

    def test_one_trainer_of_two_ends_nothing_for_the_fault_may_be_its_own(self):
        queue = queue_of(2, X, Y, quarantine=True, passes=1)
        x = Asker(queue, X)
        while isinstance(task := x.get(), Task):
            x.cannot_read(task, Unread.FAIL_JOB)
        assert not queue.failed
        assert sorted(Asker(queue, Y).work()) == [(0, 0), (0, 1)]

    def test_the_only_trainer_is_asked_twice(self):
        queue = queue_of(2, X, quarantine=True)
        x = Asker(queue, X)
        x.cannot_read(x.get(), Unread.FAIL_JOB)
        assert not queue.failed
        x.cannot_read(x.get(), Unread.FAIL_JOB)
        assert mentions(queue.failed, training_messages.DATASET_UNREADABLE)

    def test_it_is_left_out_of_the_pass_if_the_script_requests_it(self):
        queue = queue_of(2, X, quarantine=True, passes=1)
        x = Asker(queue, X)
        for _ in range(2):
            x.cannot_read(x.get(), Unread.LEAVE_OUT)
        assert x.work() == [(0, 1)]
        message = training_messages.TASK_UNREADABLE(
            task=0,
            records=training_messages.RECORD_RANGE(first=0, last=9, file="train.recordio"),
            dataset="public/test",
        )
        assert message in texts(queue)
        assert queue.finished


class TestHoles:
    """Faults of an earlier queue, by the letters of the study."""

    def test_a_the_last_task_failing_ends_the_pass(self):
        queue = queue_of(2, X, failure_cap=0, passes=1)
        x = Asker(queue, X)
        done, bad = x.get(), x.get()
        x.done(done)
        x.fail(bad)
        assert queue.finished

    def test_b_a_trainer_waiting_at_the_end_of_a_pass_gets_remaining_tasks(self):
        queue = queue_of(2, X, Y)
        x, y = Asker(queue, X), Asker(queue, Y)
        x.get()
        y.done(y.get())
        assert isinstance(y.get(), Wait)
        queue.members([Y], 5.0)
        assert y.work() == [(0, 0), (1, 0), (1, 1)]

    def test_c_a_zombie_cannot_finish_anothers_task(self):
        queue = queue_of(1, X)
        zombie = Asker(queue, X)
        task = zombie.get()
        reborn = Trainer(X.index, 99)
        queue.members([reborn], 1.0)
        Asker(queue, reborn).get(1.0)
        assert zombie.done(task, 2.0) is Verdict.STALE

    def test_d_all_tasks_discarded_is_reported_without_waiting(self):
        queue = queue_of(2, X, failure_cap=0)
        x = Asker(queue, X)
        x.fail(x.get())
        x.fail(x.get())
        assert "records 0-9 (train.recordio); records 10-19" in queue.failed

    def test_e_every_pending_task_has_a_deadline(self):
        queue = queue_of(3, X)
        x = Asker(queue, X)
        x.get(1.0), x.get(2.0)
        pending = {i for i, entry in enumerate(queue.entries) if entry.status is Status.PENDING}
        assert queue.board.pending == pending
        assert queue.next_deadline(2.0) == 61.0

    def test_f_failures_restart_at_zero_in_every_pass_and_add_up_in_the_report(self):
        queue = queue_of(1, X, failure_cap=1)
        x = Asker(queue, X)
        x.fail(x.get())
        x.done(x.get())
        assert x.get() == PassEnd(0)
        x.fail(x.get())
        assert queue.entries[0].status is Status.TODO
        assert queue.entries[0].failures_ever == 2


class TestSync:
    def test_tasks_are_assigned_in_turn_and_returned_in_order(self):
        queue = queue_of(5, Y, X, sync=True, passes=1)
        assert Asker(queue, Y).work() == [(0, 1), (0, 3)]
        assert Asker(queue, X).work() == [(0, 0), (0, 2), (0, 4)]

    def test_the_order_in_which_trainers_ask_does_not_matter(self):
        def run(first: int) -> dict[Trainer, list[tuple[int, int]]]:
            queue = queue_of(7, X, Y, sync=True)
            askers = [Asker(queue, trainer) for trainer in (X, Y)]
            seen: dict[Trainer, list[tuple[int, int]]] = {X: [], Y: []}
            for turn in range(60):
                asker = askers[(turn + first) % 2] if turn % 3 else askers[first]
                if isinstance(answer := asker.get(), Task):
                    seen[asker.trainer].append((answer.pass_id, answer.task_id))
                    asker.done(answer)
            assert queue.finished
            return seen

        assert run(0) == run(1)

    def test_one_without_a_task_leaves_the_pass_and_waits_for_the_next(self):
        queue = queue_of(1, X, Y, sync=True)
        x, y = Asker(queue, X), Asker(queue, Y)
        assert y.get() == PassEnd(0)
        assert isinstance(y.get(), Wait)
        x.done(x.get())
        assert queue.pass_id == 1
        assert y.get() == PassEnd(1)

    def test_tasks_of_a_lost_trainer_are_assigned_to_live_ones_outside_the_pass(self):
        queue = queue_of(6, X, Y, Z, sync=True)
        x, z = Asker(queue, X), Asker(queue, Z)
        Asker(queue, Y).get()
        for asker in (x, z):
            for _ in range(2):
                asker.done(asker.get())
            assert asker.get() == PassEnd(0)
        queue.members([X, Z], 1.0)
        first, second = x.get(), z.get()
        assert {first.task_id, second.task_id} == {1, 4}
        assert (first.pass_id, second.pass_id) == (0, 0)
        x.done(first)
        z.done(second)
        assert x.get() == PassEnd(0)  # it was in the pass again

    def test_a_newcomer_gets_its_share_of_the_pass_that_goes_on(self):
        queue = queue_of(9, X, Y, sync=True)
        Asker(queue, X).get()
        queue.members([X, Y, Z], 1.0)
        assert [list(queue.assigner.hands[trainer]) for trainer in (X, Y, Z)] == [[2, 4, 6], [1, 3, 5], [7, 8]]
        assert Asker(queue, Z).get().task_id == 7

    def test_a_newcomer_for_whom_nothing_is_left_takes_part_from_the_next_pass_on(self):
        queue = queue_of(1, X, sync=True)
        queue.members([X, Y], 1.0)
        x, y = Asker(queue, X), Asker(queue, Y)
        assert y.get() == PassEnd(0)
        assert isinstance(y.get(), Wait)
        x.done(x.get())
        assert y.get() == PassEnd(1)
        assert x.get() == PassEnd(0)
        assert x.get().pass_id == 1

    def test_trainers_that_come_and_go_do_every_task_of_every_pass(self):
        everybody = [Trainer(index, 50 + index) for index in range(8)]
        queue = queue_of(40, everybody[0], sync=True, passes=3)
        askers = {trainer: Asker(queue, trainer) for trainer in everybody}
        done: list[tuple[int, int]] = []
        for turn in range(1000):
            live = everybody[: (1, 8, 2, 5)[turn // 7 % 4]]
            queue.members(live, 0.0)
            for trainer in live:
                task = askers[trainer].get()
                if isinstance(task, Task):
                    assert askers[trainer].done(task) is Verdict.OK
                    done.append((task.pass_id, task.task_id))
        assert queue.finished
        assert sorted(done) == [(pass_id, task) for pass_id in range(3) for task in range(40)]

    def test_a_newcomer_takes_tasks_without_owner_at_once(self):
        queue = queue_of(4, X, sync=True)
        queue.members([], 1.0)
        queue.members([Y], 2.0)
        assert Asker(queue, Y).get().pass_id == 0

    def test_a_task_that_keeps_failing_on_its_owner_is_assigned_to_another(self):
        queue = queue_of(2, X, Y, sync=True)
        x, y = Asker(queue, X), Asker(queue, Y)
        x.fail(x.get())
        x.fail(x.get())
        assert x.get() == PassEnd(0)
        assert [y.get().task_id, y.get().task_id] == [1, 0]

    def test_tasks_of_a_silent_live_trainer_are_assigned_to_active_ones(self):
        queue = queue_of(4, X, Y, sync=True, passes=1)
        x = Asker(queue, X)
        assert x.work() == [(0, 0), (0, 2)]
        x.get(299.0)
        assert queue.next_deadline(299.0) == 300.0
        queue.tick(300.0)
        assert mentions(texts(queue), training_messages.TRAINER_SILENT)
        assert [x.get(300.0).task_id, x.get(300.0).task_id] == [1, 3]

    def test_a_task_that_hangs_on_one_trainer_does_not_hang_the_job(self):
        queue = queue_of(2, X, Y, sync=True, passes=1)
        x, y = Asker(queue, X), Asker(queue, Y)
        x.get(0.0)
        for now in range(0, 600, 30):
            queue.tick(float(now))
            if isinstance(answer := y.get(float(now)), Task):
                y.done(answer, float(now))
        assert queue.finished

    def test_without_active_trainers_assignments_stay(self):
        queue = queue_of(4, X, Y, sync=True)
        queue.tick(1000.0)
        assert [list(queue.assigner.hands[trainer]) for trainer in (X, Y)] == [[0, 2], [1, 3]]
        assert queue.next_deadline(1000.0) is None


class TestStart:
    def test_the_first_pass_waits_for_all_planned_trainers(self):
        queue = queue_of(2, X, trainers=2)
        assert isinstance(Asker(queue, X).get(), Wait)
        queue.members([X, Y], 1.0)
        assert isinstance(Asker(queue, X).get(), Task)

    def test_after_the_grace_the_least_number_suffices(self):
        queue = queue_of(2, X, Y, trainers=3, min_trainers=2)
        assert queue.next_deadline(0.0) == 20.0
        queue.tick(19.9)
        assert queue.pass_id == -1
        queue.tick(20.0)
        assert queue.pass_id == 0

    def test_after_the_grace_fewer_than_the_least_number_still_wait(self):
        queue = queue_of(2, X, trainers=3, min_trainers=2)
        queue.tick(20.0)
        assert queue.pass_id == -1

    def test_an_unregistered_trainer_gets_nothing(self):
        queue = queue_of(2, X)
        assert isinstance(Asker(queue, Y).get(), Wait)


class TestEnds:
    def test_a_trainer_gets_each_pass_end_once_and_then_the_end_of_the_job(self):
        queue = queue_of(1, X, passes=3)
        x = Asker(queue, X)
        answers = []
        while not isinstance(answer := x.get(), JobDone):
            answers.append(answer)
            if isinstance(answer, Task):
                x.done(answer)
        assert [type(answer).__name__ for answer in answers] == ["Task", "PassEnd"] * 3

    def test_a_trainer_that_missed_passes_gets_the_end_of_each(self):
        queue = queue_of(2, X, Y, passes=3)
        x, y = Asker(queue, X), Asker(queue, Y)
        y.done(y.get())
        x.work()
        assert [y.get() for _ in range(4)] == [PassEnd(0), PassEnd(1), PassEnd(2), JobDone()]

    def test_a_newcomer_gets_no_end_of_earlier_passes(self):
        queue = queue_of(1, X)
        x = Asker(queue, X)
        x.done(x.get())
        queue.members([X, Y], 1.0)
        assert isinstance(Asker(queue, Y).get(), Task)


@pytest.mark.parametrize("verb", ["done", "fail", "release", "extend"])
@pytest.mark.parametrize("change", [{"pass_id": 1}, {"task_id": 1}, {"task_id": -1}, {"epoch": 2}, {"trainer": Y}])
def test_a_report_with_any_other_key_is_stale(verb, change):
    queue = queue_of(3, X, Y)
    task = Asker(queue, X).get()
    key = Key(task.pass_id, task.task_id, task.epoch, X)._replace(**change)
    before = list(queue.entries)
    more = ("why",) if verb == "fail" else ()
    assert getattr(queue, verb)(key, *more, 1.0) is Verdict.STALE
    assert queue.entries == before


def test_the_timeout_follows_how_long_tasks_take():
    queue = queue_of(30, X, passes=1)
    x = Asker(queue, X)
    for turn in range(20):
        x.done(x.get(100.0 * turn), 100.0 * turn + 50.0)
    x.get(5000.0)
    assert queue.next_deadline(5000.0) == 5150.0
