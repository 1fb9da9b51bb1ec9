"""The data position that a version contains."""

from hypothesis import given
from hypothesis import strategies as st

from runtime.checkpoint.data_position import NO_TASK, Position, Progress, common


def after(*positions):
    progress = Progress()
    for position in positions:
        progress.note(Position(*position))
    return progress


def test_tasks_are_begun_and_then_done():
    progress = after((0, 4, 1), (0, 5, 2), (0, 6, 1, (4,)))
    assert (progress.done, progress.begun) == ({4}, {5: 2, 6: 1})


def test_a_trainer_without_a_task_reports_what_it_has_done():
    assert after((0, 4, 3), (0, NO_TASK, 0, (4,))).to_json() == {"pass": 0, "done": [4], "begun": []}


def test_a_later_pass_starts_over_and_ends_the_earlier_one():
    progress = after((0, 4, 1), (1, 2, 1), (0, 5, 7))
    assert (progress.pass_id, progress.done, progress.begun) == (1, set(), {2: 1})


def test_two_accounts_of_one_pass_are_put_together():
    ours, theirs = after((1, 4, 1, (2,))), after((1, 5, 2, (4,)))
    ours.merge(theirs)
    assert (ours.done, ours.begun) == ({2, 4}, {5: 2})


def test_of_servers_at_different_versions_whole_tasks_count_that_all_have():
    parts = [after((1, 4, 1, (1, 2))), after((1, 4, 1, (2, 3)))]
    assert common(parts) == Progress(1, {2})
    assert common([after((1, 4, 1, (1,))), after((0, 9, 1, (7,)))]) == Progress(0, {7})


@given(st.sets(st.integers(0, 200)), st.dictionaries(st.integers(0, 200), st.integers(1, 99)))
def test_it_is_read_back_as_it_was(done, begun):
    progress = Progress(3, done, begun)
    assert Progress.from_json(progress.to_json()) == progress
