"""The report that ends a task early, of which there is at most one."""

import threading

import pytest

from runtime.errors import Lost
from runtime.master.messages import Task, Unread
from runtime.trainer.tasks.current_task import CurrentTask

TASK = Task(0, 3, 1, ())


class Source:
    """Records reports; with ``lost`` each raises afterwards."""

    def __init__(self, lost=False):
        self.reports = []
        self.lost = lost

    def __getattr__(self, name):
        def report(*arguments):
            self.reports.append((name, *arguments))
            if self.lost:
                raise Lost("No master has answered.")
            return True

        return report


def working(source, stop=lambda: None):
    current = CurrentTask(source, stop)
    current.task, current.place = TASK, (20, 30)
    return current


def test_a_task_is_reported_once_whatever_is_reported_after_it():
    current = working(source := Source())
    current.release()
    current.fail("it raised")
    current.cannot_read("the file is gone", Unread.FAIL_JOB)
    assert source.reports == [("release", TASK)]
    assert current.task is None


def test_two_threads_that_report_a_task_at_once_report_it_once():
    current = working(source := Source())
    both = threading.Barrier(2)

    def report():
        both.wait(60)
        current.release()

    threads = [threading.Thread(target=report) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(10)
    assert source.reports == [("release", TASK)]


def test_an_error_of_the_script_is_reported_at_the_batch_in_training():
    working(source := Source()).fail_here("the script raised")
    assert source.reports == [("fail", TASK, "the script raised", (20, 30))]


def test_reading_is_stopped_before_the_report_is_sent():
    order = []
    source = Source()
    current = working(source, lambda: order.append(list(source.reports)))
    current.release()
    assert order == [[]]


def test_a_lost_master_does_not_hide_why_the_process_ends():
    current = working(Source(lost=True))
    current.release()
    assert current.task is None


def test_unreadable_data_that_cannot_be_reported_raises():
    with pytest.raises(Lost):
        working(Source(lost=True)).cannot_read("the file is gone", Unread.LEAVE_OUT)
