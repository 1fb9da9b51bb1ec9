"""Savepoints and rollback of the changes of a decision, as in a database. Pure."""

from __future__ import annotations

from collections.abc import Callable


class Transaction:
    """The inverse operations of all changes since the last commit, newest last.

    Invariant: if each change records its inverse, the state after ``rollback(savepoint)`` is that of ``savepoint()``.
    """

    def __init__(self) -> None:
        self._inverses: list[Callable[[], object]] = []

    def record(self, inverse: Callable[[], object]) -> None:
        """Add the inverse of a change that has just been made."""
        self._inverses.append(inverse)

    def savepoint(self) -> int:
        return len(self._inverses)

    def rollback(self, savepoint: int) -> None:
        """Undo all changes since a savepoint, newest first."""
        while len(self._inverses) > savepoint:
            self._inverses.pop()()

    def commit(self) -> None:
        """Make all changes final. Earlier savepoints become invalid."""
        self._inverses.clear()
