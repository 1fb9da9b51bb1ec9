from runtime.checkpoint.data_position import Position, Progress
from runtime.pserver.contained_requests import ContainedRequests


def test_a_request_counts_once_with_all_before_it():
    contained = ContainedRequests()
    contained.record(0, 5)
    assert [contained.has(0, seq) for seq in (4, 5, 6)] == [True, True, False]
    assert not contained.has(1, 5)
    assert [contained.is_last(0, seq) for seq in (4, 5)] == [False, True]


def test_restored_numbers_count_for_their_incarnation_only():
    contained = ContainedRequests()
    contained.restore({10: 7}, Progress())
    contained.recognise({0: 11, 1: 10})
    assert (contained.has(0, 1), contained.has(1, 7)) == (False, True)


def test_a_number_never_falls_while_its_trainer_lives():
    contained = ContainedRequests()
    contained.restore({10: 7}, Progress())
    contained.record(0, 9)
    contained.recognise({0: 10})
    contained.place(0, 10, 8)
    contained.merge({10: 6}, {0: 10})
    assert contained.is_last(0, 9)


def test_the_values_of_a_trainer_add_to_what_the_checkpoint_contains():
    contained = ContainedRequests()
    contained.restore({10: 7, 11: 3}, Progress())
    contained.merge({11: 4}, {0: 10, 1: 11})
    assert contained.sequences({0: 10, 1: 11}) == {10: 7, 11: 4}


def test_the_numbers_of_a_lost_trainer_are_not_those_of_its_successor():
    contained = ContainedRequests()
    contained.record(0, 9)
    contained.forget(0)
    assert not contained.has(0, 1)
    assert contained.sequences({0: 12}) == {}


def test_a_request_brings_its_position_in_the_data():
    contained = ContainedRequests()
    contained.record(0, 1, Position(0, 4, 2))
    contained.record(0, 2)
    assert contained.progress.begun == {4: 2}
