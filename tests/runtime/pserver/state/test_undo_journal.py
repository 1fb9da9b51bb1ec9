"""The version before an update can be read at every moment of it, wherever the server is killed."""

import itertools

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from runtime.parameters.journal_layout import MARKS, kept, layout, restore, whole
from runtime.pserver.state.undo_journal import Journal
from tests.properties import examples

SIZES = (5, 1, 3)
TOTAL = sum(SIZES)


def shard(version):
    """Journal and parameters of a version, whose numbers are its number."""
    journal = Journal(np.zeros(*MARKS), [np.full(size, np.nan, "f4") for size in SIZES])
    journal.version = version
    return journal, [np.full(size, version, "f4") for size in SIZES]


def moments(journal, parameters):
    """Make the next version, a number at a time."""
    version = journal.version + 1
    yield
    journal.begin()
    yield
    for number, parameter in enumerate(parameters):
        journal.keep(number, parameter)
        yield
        for place in range(parameter.size):
            parameter[place] = version
            yield
    journal.version = version


def read(journal, parameters, version):
    """The numbers of a version as a reader combines them; None if it is gone."""
    count = kept(journal.marks, version, TOTAL)
    if count is None:
        return None
    values = [np.zeros(size, "f4") for size in SIZES]
    restore(values, parameters, journal.blocks, count)
    return sorted(set(np.concatenate(values).tolist()))


def test_at_every_moment_of_an_update_the_version_before_is_whole():
    journal, parameters = shard(4)
    for _ in range(2):
        version = journal.version
        for _moment in moments(journal, parameters):
            assert read(journal, parameters, version) == [version]
            assert read(journal, parameters, version + 1) is None
        assert read(journal, parameters, version) == [version]
        assert read(journal, parameters, version + 1) == [version + 1]


@settings(max_examples=examples(50))
@given(st.integers(0, 3), st.integers(0, 20))
def test_what_is_read_is_what_was_asked_for_or_nothing(updates, stop):
    journal, parameters = shard(1)
    for _ in range(updates):
        list(moments(journal, parameters))
    list(itertools.islice(moments(journal, parameters), stop))
    for version in range(journal.version + 3):
        assert read(journal, parameters, version) in (None, [version])


def test_a_version_that_changed_nothing_leaves_the_one_before_to_its_readers():
    journal, parameters = shard(4)
    journal.repeat()
    assert journal.version == 5
    assert read(journal, parameters, 4) == [4]
    assert read(journal, parameters, 5) == [4]


def test_parameters_are_whole_only_between_updates():
    journal, parameters = shard(4)
    before, *during = (whole(journal.marks, 4) for _moment in moments(journal, parameters))
    assert before
    assert not any(during)
    assert [whole(journal.marks, version) for version in (4, 5)] == [False, True]


def test_a_journal_is_as_large_as_the_parameters():
    sizes = [(5, "<f4"), (1, "<f8")]
    assert layout(sizes, journalled=True) == [MARKS, *sizes, *sizes]
    assert layout(sizes, journalled=False) == [MARKS, *sizes]
