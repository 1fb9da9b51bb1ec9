"""Replicas whose program is held at its exception: what their agents report, and the messages. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from jobs.lifecycle.wording import in_words
from jobs.messages import holds as messages
from runtime import contract
from runtime.messages.composition import enumerated

LONGEST_NAME = 100  # characters of the name of an exception
# After this time beyond its end, a hold is over even if no agent has reported it.
SLACK = timedelta(seconds=30)


@dataclass(frozen=True)
class Held:
    """``exception``: name of its type. ``seconds``: the length of the hold, which ends at ``until``."""

    exception: str
    seconds: int
    until: datetime

    @classmethod
    def of(cls, exception: str, seconds: int, until: float, now: datetime) -> Held:
        """Return the hold that an agent reports (``until``: unix time), bounded: its clock may be another."""
        length = max(1, min(seconds, contract.HOLD_SECONDS_LIMIT))
        end = min(max(until, now.timestamp()), now.timestamp() + length)
        name = "".join(one if one.isprintable() else "?" for one in exception[:LONGEST_NAME])
        return cls(name or "?", length, datetime.fromtimestamp(end, UTC))

    def to_json(self) -> dict[str, Any]:
        return {"exception": self.exception, "seconds": self.seconds, "until": self.until.timestamp()}

    @classmethod
    def from_json(cls, body: Mapping[str, Any] | None) -> Held | None:
        if body is None:
            return None
        return cls(body["exception"], body["seconds"], datetime.fromtimestamp(body["until"], UTC))

    def lasts(self, now: datetime) -> bool:
        return now < self.until + SLACK


def begun(replica: str, held: Held) -> str:
    return messages.HELD(replica=replica, exception=held.exception, length=in_words(timedelta(seconds=held.seconds)))


def message(holds: Sequence[tuple[str, Held]]) -> str:
    """Return the message of a job with held replicas, by name; empty if there is none."""
    if len(holds) > 1:
        return messages.HELD_SEVERAL(replicas=enumerated([replica for replica, _ in holds]))
    return begun(*holds[0]) if holds else ""
