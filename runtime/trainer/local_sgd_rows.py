"""The rows of one table that a trainer changes by itself during a round of mode ``outer(H)``. Pure.

A row is fetched when a round first needs it. The steps of the round change a copy, by the table's own optimiser, whose
state stays with the trainer from round to round like that of the parameters. The changes of the round are pushed.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from runtime.messages import paragraph
from runtime.messages import training as messages
from runtime.parameters.declaration import OUTER_RULE
from runtime.parameters.embedding_tables import Full, Rows, Shelf, Table
from runtime.parameters.optimisers import SGD

Array = NDArray[Any]


def averaged(table: Table) -> Table:
    """The table as the servers have it: their rows are updated by the mean of the changes of rounds."""
    return replace(table, optimiser=OUTER_RULE)


class RoundRows:
    """``fetch`` returns the rows (n, dim) of different ids as they were when the round began."""

    def __init__(self, table: Table, fetch: Callable[[Array], Array]) -> None:
        self._fetch = fetch
        self._own = Shelf(table)  # all rows ever changed by this trainer: the values of this round, and the state
        self._before = Shelf(table)
        self._changed = np.empty(0, "i8")
        self.begin()

    def begin(self) -> None:
        """Begin a round: the servers' rows may have changed."""
        self._before = Shelf(replace(self._own.table, optimiser=SGD()))
        self._changed = np.empty(0, "i8")

    def values(self, ids: Array) -> Array:
        """The present rows (n, dim) of ``ids``, which differ. Raises Full."""
        self._have(ids)
        values = self._before.values(ids)
        changed = np.isin(ids, self._changed)
        values[changed] = self._own.values(ids[changed])
        return values

    def apply(self, gradients: Rows, step: int) -> None:
        """Make step number ``step`` of this trainer, counted from 1, with gradients of different ids. Raises Full."""
        ids = gradients.ids
        self._have(ids)
        fresh = np.setdiff1d(ids, self._changed)
        self._write(self._own, fresh, self._before.values(fresh))
        self._changed = np.union1d(self._changed, fresh)
        self._own.apply(gradients, step - 1, 1.0)

    def changes(self) -> Rows:
        """The changes of the round, subtracted from each changed row, in order of id."""
        ids = self._changed
        return Rows(ids, self._before.values(ids) - self._own.values(ids))

    def _have(self, ids: Array) -> None:
        missing = ids[~self._before.holds(ids)]
        if missing.size:
            self._write(self._before, missing, self._fetch(missing))

    def _write(self, shelf: Shelf, ids: Array, values: Array) -> None:
        try:
            shelf.reserve(shelf.unseen(ids))
        except MemoryError:
            raise Full(
                paragraph(
                    messages.TRAINER_MEMORY_FULL(rows=f"{ids.size:,}", name=f"{shelf.table.name!r}"),
                    messages.ADD_TRAINER_MEMORY(),
                )
            ) from None
        shelf.write(ids, values)
