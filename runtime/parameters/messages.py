"""Messages between trainers and parameter servers: outcomes, offers, and passes. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from runtime.protocol import frames

NEVER = -1


# A pass after all others: a trainer that ends it is never waited for again.
FOREVER = (1 << 31) - 1


# The version of missing values.
NOTHING = -1


_MAPPINGS = ("sequences", "clocks", "samples")  # of ``Standing``


@dataclass(frozen=True)
class Standing:
    """What a version contains, where steps are applied one by one: which requests of which trainers.

    ``sequences``: the last request of each trainer, by incarnation. ``clocks``, ``samples`` (by index), ``rounds``: see
    ``Pace``.
    """

    sequences: Mapping[int, int] = field(default_factory=dict)
    clocks: Mapping[int, int] = field(default_factory=dict)
    samples: Mapping[int, int] = field(default_factory=dict)
    rounds: float = 0.0

    def to_json(self) -> dict[str, Any]:
        pairs = {name: [list(pair) for pair in getattr(self, name).items()] for name in _MAPPINGS}
        return {**pairs, "rounds": self.rounds}

    @classmethod
    def from_json(cls, body: Mapping[str, Any]) -> Standing:
        """Read ``to_json``'s form. Raises KeyError, TypeError, ValueError."""
        mappings = {name: {int(key): int(number) for key, number in body[name]} for name in _MAPPINGS}
        return cls(**mappings, rounds=float(body["rounds"]))


@dataclass(frozen=True)
class Offer:
    """A trainer's position with respect to a shard. ``held`` is the version of the values that it has completely.

    ``seen`` is the newest version that the shard has reported to it, ``seq`` the last request that was answered. It has
    begun pass ``begun`` and ended pass ``ended``.
    """

    held: int = NOTHING
    seen: int = 0
    seq: int = 0
    begun: int = NEVER
    ended: int = NEVER

    @property
    def has_seen(self) -> bool:
        """Whether this trainer has received anything from the shard before."""
        return self.held > NOTHING or self.seen > 0


class Outcome(StrEnum):
    """The outcome of a request."""

    DONE = "done"
    INITIALISE = "initialise"  # to a declaration: this trainer sends the first values
    READY = "ready"  # to a declaration: there are values
    RESEED = "reseed"  # to an offer: this trainer restores the values that were lost
    LOST = "lost"  # to an offer: no trainer can restore them
    ALREADY = "already"  # to an initialisation: there were values, these are dropped
    DUPLICATE = "duplicate"  # applied before
    STALE = "stale"  # the version was made without it; dropped
    SUPERSEDED = frames.SUPERSEDED  # the same step arrived again on another connection
    CONFLICT = "conflict"
    FENCED = "fenced"
    NOT_READY = "not_ready"
    OUT_OF_PLACE = "out_of_place"
    NOT_FINITE = "not_finite"
    NO_MEMORY = "no_room"  # no memory for the rows of a step
