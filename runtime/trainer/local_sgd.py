"""Training in rounds, mode ``outer(H)``: every trainer makes H steps by itself, then the changes are averaged.

Traffic shrinks by a factor of H. After DiLoCo (Douillard et al. 2023): the job's optimiser makes the steps in the
trainer, with state that stays there. For the servers, the change of H steps counts as one gradient, weighted by its
samples.

A round that the end of a pass cuts short is pushed as it is. If a trainer is killed, its steps since its last round are
lost. The same applies to rows of tables (``local_sgd_rows``).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from runtime.checkpoint.data_position import Position
from runtime.parameters.array_blocks import all_finite
from runtime.parameters.declaration import Declaration, Mode
from runtime.parameters.embedding_tables import Rows, Table
from runtime.parameters.optimisers import Optimiser
from runtime.trainer.local_sgd_rows import RoundRows, averaged
from runtime.trainer.parameter_store import NO_ROWS, Pushes, Store, arrays_of

Array = NDArray[Any]


class Rounds:
    """A store whose pushes are local except for one in ``H``, which goes to ``store``."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._length = 1
        self._rule = Optimiser()
        self._values: Sequence[Array] = ()
        self._state: list[tuple[Array, ...]] = []
        self._before: list[Array] = []  # the values at the beginning of the round, where the store writes them
        self._steps = 0  # of this round
        self._samples = 0  # of this round
        self._updates = 0  # made here in total
        self._tables: dict[Table, RoundRows] = {}

    @property
    def version(self) -> int:
        """Steps of this trainer and of the rounds before, as if all rounds were complete."""
        return self._store.version * self._length + self._steps

    def home(self, declaration: Declaration) -> Sequence[Array]:
        return arrays_of(declaration)

    def start(self, declaration: Declaration, values: Sequence[Array]) -> None:
        self._length = Mode.parse(declaration.mode).local_steps
        self._rule = declaration.optimiser
        self._before = [value.copy() for value in values]
        self._store.start(declaration, self._before)
        self._values = values
        self._state = self._rule.states(values)
        self._begin_round()

    def gradient_buffers(self) -> Sequence[Array]:
        return [np.zeros_like(value) for value in self._values]

    def take(self, number: int, gradient: Array) -> bool:
        return all_finite(gradient)

    def stage(self, number: int, gradient: Array) -> bool:
        """Take the gradient; most steps push nothing."""
        return self.take(number, gradient)

    def push(self, gradients: Sequence[Array], samples: int, pull: bool, rows: Pushes = NO_ROWS) -> None:
        """Make a step here; the last one of a round waits for the others and fetches the new values."""
        if samples:
            self._updates += 1
            for table, some in rows.items():
                self._rows_of(table).apply(some, self._updates)
            for value, gradient, state in zip(self._values, gradients, self._state, strict=True):
                self._rule.apply(value, gradient, state, self._updates)
        self._steps += 1
        self._samples += samples
        if self._steps == self._length:
            self._push_round()

    def pull(self) -> None:
        """Fetch the values of the last round; steps of a round that has begun are pushed first."""
        if self._steps:
            self._push_round()
        else:
            self._store.pull()
            self._begin_round()

    def rows(self, table: Table, ids: Array) -> Array:
        return self._rows_of(table).values(ids)

    def trained_rows(self, table: Table) -> Rows:
        """As of the last round."""
        return self._store.trained_rows(averaged(table))

    def _rows_of(self, table: Table) -> RoundRows:
        if table not in self._tables:
            self._tables[table] = RoundRows(table, lambda ids: self._store.rows(averaged(table), ids))
        return self._tables[table]

    def set_position(self, position: Position) -> None:
        self._store.set_position(position)

    def begin_pass(self, number: int) -> None:
        self._store.begin_pass(number)
        self._begin_round()

    def end_pass(self, number: int) -> None:
        if self._steps:
            self._push_round()
        self._store.end_pass(number)

    def _push_round(self) -> None:
        changes = [before - value for before, value in zip(self._before, self._values, strict=True)]
        for number, change in enumerate(changes):
            self._store.take(number, change)
        rows = {averaged(table): rows.changes() for table, rows in self._tables.items()}
        changed = {table: some for table, some in rows.items() if len(some)}
        self._store.push(changes, self._samples, pull=True, rows=changed if self._samples else NO_ROWS)
        self._begin_round()

    def _begin_round(self) -> None:
        for before, value in zip(self._before, self._values, strict=True):
            np.copyto(value, before)
        for rows in self._tables.values():
            rows.begin()
        self._steps = self._samples = 0
