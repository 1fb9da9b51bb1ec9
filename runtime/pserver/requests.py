"""The requests of trainers to a shard, and the answers that it releases. Pure.

A ticket is any value by which the caller finds the request again.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field
from typing import Any

from numpy.typing import NDArray

from runtime.checkpoint.data_position import Position
from runtime.parameters.embedding_tables import Pushed
from runtime.parameters.messages import Outcome

Array = NDArray[Any]
Ticket = Hashable

REFUSALS = frozenset(
    {
        Outcome.SUPERSEDED,
        Outcome.CONFLICT,
        Outcome.FENCED,
        Outcome.NOT_READY,
        Outcome.OUT_OF_PLACE,
        Outcome.NOT_FINITE,
        Outcome.LOST,
        Outcome.NO_MEMORY,
    }
)


@dataclass(frozen=True)
class Release:
    """The answer to a request: its ticket, the outcome, the shard's version, and the reason of a refusal."""

    ticket: Ticket
    outcome: Outcome
    version: int = 0
    why: str = ""


Releases = list[Release]


@dataclass(frozen=True)
class TrainerId:
    """A trainer's process."""

    index: int
    incarnation: int


@dataclass(frozen=True)
class Step:
    """A push: ``gradients`` are flat, in the order of the shard's blocks, means over ``samples`` records.

    ``base`` is the version at which they were computed, ``seq`` the number of the request. A step without samples has
    no gradients: its trainer takes part, and changes nothing. ``rows`` are the gradients for the tables that it uses.
    ``at`` is its position in the data.
    """

    seq: int
    samples: int
    base: int
    gradients: Sequence[Array] = ()
    rows: Pushed = field(default_factory=dict)
    at: Position | None = None
