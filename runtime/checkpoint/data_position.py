"""The position in the data that a version of the parameters contains. Pure.

Trainers send their position in the data with every step. So a shard has for each version, without further requests, the
tasks that are contained completely and the part of each task that is begun. The next attempt continues from there.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from runtime.protocol.run_length import from_runs, to_runs


class Position(NamedTuple):
    """A trainer has had ``batches`` batches of a task, and all of the tasks ``done`` since its last report."""

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


# The task of a trainer without one.
NO_TASK = -1


@dataclass
class Progress:
    """``pass_id`` is the last pass that a version contains anything of; ``begun`` is batches by task of that pass."""

    pass_id: int = 0
    done: set[int] = field(default_factory=set)
    begun: dict[int, int] = field(default_factory=dict)

    def note(self, position: Position) -> None:
        """Add a step at this position to the version. The rest of an earlier pass counts as done."""
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
        """Add what another position has of the same pass to the version; a later pass replaces this one."""
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
    """The position common to several servers at different versions: complete tasks only."""
    parts = list(parts)
    first = min((part.pass_id for part in parts), default=0)
    done = [part.done for part in parts if part.pass_id == first]
    return Progress(first, set.intersection(*done) if done else set())
