"""What was reported of an attempt's progress, so that each event is written once. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from runtime.messages import restore, to_json


@dataclass(frozen=True)
class Reported:
    """Stored with the attempt, in the transaction of the event.

    * ``stall``: the message of the present stall; empty: the job is not stalled. ``since``: unix time of the last
      progress before it.
    * ``restart``, ``start``: the replica to be started again because of it, and the number of the start to be ended.
    * ``straggler``: the trainer that was reported as slow; empty: none.
    """

    stall: str = ""
    since: float = 0.0
    restart: str = ""
    start: int = 0
    straggler: str = ""

    def moved(self) -> Reported:
        """Return the state after the end of the stall."""
        return replace(self, stall="", since=0.0, restart="", start=0)

    def to_json(self) -> dict[str, Any]:
        return {**vars(self), "stall": to_json(self.stall)}

    @classmethod
    def from_json(cls, body: Mapping[str, Any] | None) -> Reported:
        """Read what ``to_json`` wrote; None: nothing was reported."""
        return cls(**{**body, "stall": restore(body["stall"])}) if body else cls()
