"""The state between a trainer's tasks: those given ahead, and the done ones that no answer covers yet."""

from runtime.master.messages import Ahead, Task
from runtime.trainer.tasks.task_prefetch import DoneTasks, PrefetchedTasks


def tasks(*numbers, epoch=1):
    return tuple(Task(0, number, epoch, ()) for number in numbers)


def prefetched(*numbers, ended=None):
    state = PrefetchedTasks()
    state.replace(Ahead(tasks(*numbers), ended), 5.0)
    return state


def test_a_task_begun_while_its_request_was_answered_is_not_begun_again():
    state = prefetched(0, 1)
    state.start_request()
    state.begin_next()
    state.replace(Ahead(tasks(0, 1, 2)), 6.0)
    assert [task.task_id for task in state.tasks] == [1, 2]
    assert state.confirmed_at == 6.0


def test_a_task_that_is_given_again_after_it_was_begun_may_be_begun_again():
    state = prefetched(0, 1)
    state.begin_next()
    state.start_request()
    state.replace(Ahead(tasks(0)), 6.0)
    assert [task.task_id for task in state.tasks] == [0]


def test_another_dispatch_of_a_begun_task_is_another_task():
    state = prefetched(0)
    state.start_request()
    state.begin_next()
    state.replace(Ahead(tasks(0, epoch=2)), 6.0)
    assert [task.epoch for task in state.tasks] == [2]


def test_tasks_are_scarce_when_half_of_the_last_answer_is_begun():
    state, scarce = prefetched(0, 1, 2, 3), []
    for _ in range(4):
        state.begin_next()
        scarce.append(state.are_scarce)
    assert scarce == [False, True, True, True]


def test_the_last_tasks_of_a_pass_are_never_scarce():
    state = prefetched(0, ended=0)
    state.begin_next()
    assert not state.are_scarce


def test_the_end_of_a_pass_is_taken_once():
    state = prefetched(ended=3)
    assert [state.take_end(), state.take_end()] == [3, None]


def test_dropped_tasks_leave_no_end_and_no_next_pass():
    state = PrefetchedTasks()
    state.replace(Ahead(tasks(0), 0, tasks(1)), 5.0)
    state.clear()
    assert (list(state.tasks), state.take_end(), state.then) == ([], None, ())


def test_a_done_task_is_in_one_notice_and_in_every_request_until_one_is_answered():
    done = DoneTasks()
    done.add(tasks(0))
    assert done.without_notice == [*tasks(0)]
    done.record_notice()
    done.add(tasks(1))
    assert done.without_notice == [*tasks(1)]
    assert done.all == tasks(0, 1)


def test_an_answer_covers_the_tasks_of_its_request_and_not_those_done_since():
    done = DoneTasks()
    done.add(tasks(0, 1))
    done.record_notice()
    done.add(tasks(2))
    done.drop(2)
    assert done.all == tasks(2)
    assert done.without_notice == [*tasks(2)]
