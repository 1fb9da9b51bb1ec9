"""Lifecycle of a version, as one table. Pure.

open -> indexing -> sealed
 ^         |
 |         v
 +------ failed          (filled again, or sealed again as it is)
any but deleted -> deleted

``open`` and ``failed`` versions accept files from users with write permission and are hidden from all others.
``sealed`` versions never change.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum

from datasets import messages
from runtime.messages import Template


class VersionState(StrEnum):
    OPEN = "open"
    INDEXING = "indexing"
    SEALED = "sealed"
    FAILED = "failed"
    DELETED = "deleted"


class Event(StrEnum):
    """Event in the lifecycle of a version."""

    FILL = "fill"
    SEAL = "seal"
    INDEXED = "indexed"
    REFUSED = "refused"
    DELETE = "delete"


class Impossible(ValueError):
    """The state of the version does not allow the event. The text is a message."""


FILLABLE = frozenset({VersionState.OPEN, VersionState.FAILED})

_TRANSITIONS: Mapping[tuple[VersionState, Event], VersionState] = {
    (VersionState.OPEN, Event.FILL): VersionState.OPEN,
    (VersionState.FAILED, Event.FILL): VersionState.OPEN,
    (VersionState.OPEN, Event.SEAL): VersionState.INDEXING,
    (VersionState.FAILED, Event.SEAL): VersionState.INDEXING,
    # Repeated because the response was lost.
    (VersionState.INDEXING, Event.SEAL): VersionState.INDEXING,
    (VersionState.SEALED, Event.SEAL): VersionState.SEALED,
    (VersionState.INDEXING, Event.INDEXED): VersionState.SEALED,
    (VersionState.INDEXING, Event.REFUSED): VersionState.FAILED,
    **{(state, Event.DELETE): VersionState.DELETED for state in VersionState},
}
_WHY_NOT: Mapping[VersionState, Template] = {
    VersionState.OPEN: messages.VERSION_OPEN,
    VersionState.INDEXING: messages.VERSION_SEALING,
    VersionState.SEALED: messages.VERSION_SEALED,
    VersionState.FAILED: messages.VERSION_SEALING_FAILED,
    VersionState.DELETED: messages.VERSION_NUMBER_DELETED,
}


def step(state: VersionState, event: Event, number: int) -> VersionState:
    """Return the next state. ``number`` is the version's number, for the message. Raises Impossible."""
    following = _TRANSITIONS.get((state, event))
    if following is None:
        raise Impossible(_WHY_NOT[state](number=number))
    return following
