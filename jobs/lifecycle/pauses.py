"""Pause of an attempt: what is stored, how long it lasted, and how its trainers come to the same step. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any, NamedTuple

from jobs.frameworks.definitions import NATIVE
from jobs.messages import pauses as messages

# How agents stop a replica: between two steps of the native runtime, or by SIGSTOP.
STEPS, SIGNAL = "steps", "signal"


@dataclass(frozen=True)
class Pause:
    """Stored with the attempt.

    * ``on``: it is to be paused; ``done``: all agents have stopped their programs, or let them go on.
    * ``since``: unix time of the request; ``spent``: seconds of earlier pauses.
    * ``by``: the name of the user; ``how``: STEPS or SIGNAL.
    """

    on: bool
    done: bool
    since: float
    spent: float
    by: str
    how: str

    @classmethod
    def begin(cls, before: Pause | None, by: str, framework: str, now: datetime) -> Pause:
        how = STEPS if framework == NATIVE else SIGNAL
        # Later than that of the pause before, by which agents order requests: clocks of two processes may differ.
        since = max(now.timestamp(), before.since + 0.001) if before else now.timestamp()
        return cls(True, False, since, before.spent if before else 0.0, by, how)

    def resume(self, by: str, now: datetime) -> Pause:
        return replace(self, on=False, done=False, spent=self.total(now).total_seconds(), by=by)

    def total(self, now: datetime) -> timedelta:
        """Return the time of all pauses, for which the timeout of the job is extended."""
        return timedelta(seconds=self.spent + (max(0.0, now.timestamp() - self.since) if self.on else 0.0))

    def to_json(self) -> dict[str, Any]:
        return dict(vars(self))

    @classmethod
    def from_json(cls, body: Mapping[str, Any] | None) -> Pause | None:
        return None if body is None else cls(**body)

    def message(self) -> str:
        """Return the message of the job; empty if it is not paused."""
        if not self.on:
            return ""
        if not self.done:
            return messages.PAUSING(name=self.by)
        return messages.PAUSED_STEPS(name=self.by) if self.how == STEPS else messages.PAUSED_SIGNAL(name=self.by)


class Standing(NamedTuple):
    """Answer of an agent. ``version``: of the parameters; None: its steps are not counted, or not known."""

    stopped: bool
    version: int | None = None


def is_done(found: Sequence[Standing], on: bool) -> bool:
    """Return whether all have stopped at the same version, or all go on."""
    if not on:
        return not any(one.stopped for one in found)
    return all(one.stopped for one in found) and len({one.version for one in found if one.version is not None}) <= 1


def target_of(found: Sequence[Standing]) -> int:
    """Return the version at which all stop.

    A trainer in the middle of a step reaches the version after its own, for which it needs the gradients of the others.
    """
    return max((one.version + (not one.stopped) for one in found if one.version is not None), default=0)
