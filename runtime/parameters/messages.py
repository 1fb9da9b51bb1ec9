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


# The version of values that nobody has.
NOTHING = -1


_MAPPINGS = ("sequences", "clocks", "samples")  # of ``Standing``


@dataclass(frozen=True)
class Standing:
    """What a version is made of, where steps are applied one by one: which requests of which trainers.

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
    """Where a trainer is with a shard. ``held`` is the version of the values that it has whole.

    ``seen`` is the newest version that the shard has told it, ``seq`` the last request that was answered; it has begun
    pass ``begun`` and ended pass ``ended``.
    """

    held: int = NOTHING
    seen: int = 0
    seq: int = 0
    begun: int = NEVER
    ended: int = NEVER

    @property
    def knows(self) -> bool:
        """Whether this trainer has had anything of the shard before."""
        return self.held > NOTHING or self.seen > 0


class Outcome(StrEnum):
    """How a request is answered."""

    DONE = "done"
    INITIALISE = "initialise"  # to a declaration: this trainer gives the first values
    READY = "ready"  # to a declaration: there are values
    RESEED = "reseed"  # to an offer: this trainer gives back the values that were lost
    LOST = "lost"  # to an offer: nobody can give them back
    ALREADY = "already"  # to an initialisation: there were values, these are dropped
    DUPLICATE = "duplicate"  # applied before
    STALE = "stale"  # the version was made without it; dropped
    SUPERSEDED = frames.SUPERSEDED  # the same step came again on another connection
    CONFLICT = "conflict"
    FENCED = "fenced"
    NOT_READY = "not_ready"
    OUT_OF_PLACE = "out_of_place"
    NOT_FINITE = "not_finite"
    NO_MEMORY = "no_room"  # no memory for the rows of a step
