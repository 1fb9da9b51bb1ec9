"""How far the data is that a version of the parameters contains. Pure.

Trainers say with every step where in the data they are, so that a shard knows at each version, without asking anybody,
which tasks are in it whole and how much of each that is begun. The next attempt goes on from there.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from runtime.protocol.run_length import from_runs, to_runs


class Position(NamedTuple):
    """A trainer has had ``batches`` batches of a task, and all of tasks ``done`` since it last said so."""

    pass_id: int
    task: int
    batches: int
    done: tuple[int, ...] = ()

    def to_json(self) -> list[Any]:
        return [self.pass_id, self.task, self.batches, list(self.done)]

    @classmethod
    def from_json(cls, body: Sequence[Any]) -> Position:
        """Read ``to_json``'s form. Raises TypeError, ValueError."""
        pass_id, task, batches, done = body
        return cls(int(pass_id), int(task), int(batches), tuple(map(int, done)))


# The task of a trainer that has none.
NO_TASK = -1


@dataclass
class Progress:
    """``pass_id`` is the last pass of which a version holds anything; ``begun`` is batches by task of that pass."""

    pass_id: int = 0
    done: set[int] = field(default_factory=set)
    begun: dict[int, int] = field(default_factory=dict)

    def note(self, position: Position) -> None:
        """A step at this position is part of the version. What is left of a pass before counts as done."""
        if position.pass_id < self.pass_id:
            return
        if position.pass_id > self.pass_id:
            self.pass_id, self.done, self.begun = position.pass_id, set(), {}
        self.done.update(position.done)
        if position.task != NO_TASK:
            self.begun[position.task] = position.batches
        for task in self.done & self.begun.keys():
            del self.begun[task]

    def merge(self, other: Progress) -> None:
        """What another has of the same pass is part of the version too; a later pass counts alone."""
        if other.pass_id > self.pass_id:
            self.pass_id, self.done, self.begun = other.pass_id, set(), {}
        if other.pass_id == self.pass_id:
            self.done |= other.done
            self.begun = {task: n for task, n in (self.begun | other.begun).items() if task not in self.done}

    def copy(self) -> Progress:
        return Progress(self.pass_id, set(self.done), dict(self.begun))

    def to_json(self) -> dict[str, Any]:
        begun = [list(pair) for pair in sorted(self.begun.items())]
        return {"pass": self.pass_id, "done": to_runs(sorted(self.done)), "begun": begun}

    @classmethod
    def from_json(cls, body: Mapping[str, Any]) -> Progress:
        """Read ``to_json``'s form. Raises KeyError, TypeError, ValueError."""
        begun = {int(task): int(batches) for task, batches in body["begun"]}
        return cls(int(body["pass"]), set(from_runs(body["done"])), begun)


def common(parts: Iterable[Progress]) -> Progress:
    """What all of several servers have that are not at one version: whole tasks alone."""
    parts = list(parts)
    first = min((part.pass_id for part in parts), default=0)
    done = [part.done for part in parts if part.pass_id == first]
    return Progress(first, set.intersection(*done) if done else set())
