"""Lifecycle of a version: every pair of state and event, and transitions that must never happen."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from datasets.states import Event, Impossible, VersionState, step


@pytest.mark.parametrize("state", VersionState)
@pytest.mark.parametrize("event", Event)
def test_every_pair_has_a_state_or_a_message(state: VersionState, event: Event) -> None:
    try:
        assert step(state, event, 3) in VersionState
    except Impossible as error:
        assert str(error).startswith("Version 3 ")


@pytest.mark.invariant("A sealed version changes only by deletion.")
@given(st.lists(st.sampled_from(Event)))
def test_what_is_sealed_is_only_ever_deleted(events: list[Event]) -> None:
    state, was_sealed = VersionState.OPEN, False
    for event in events:
        try:
            state = step(state, event, 1)
        except Impossible:
            continue
        was_sealed |= state == VersionState.SEALED
        assert not was_sealed or state in (VersionState.SEALED, VersionState.DELETED)


def test_a_failed_version_can_be_corrected_and_sealed_again() -> None:
    state = VersionState.OPEN
    for event in (Event.SEAL, Event.REFUSED, Event.FILL, Event.SEAL, Event.INDEXED):
        state = step(state, event, 1)
    assert state == VersionState.SEALED
