"""The storage of parameters in the trainer's own process."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from runtime.checkpoint.data_position import Position
from runtime.parameters.array_blocks import all_finite
from runtime.parameters.declaration import Declaration
from runtime.parameters.embedding_tables import Rows, Table, Tables
from runtime.parameters.optimisers import Optimiser
from runtime.parameters.sharding import even_table
from runtime.trainer.parameter_store import NO_ROWS, Pushes, arrays_of

Array = NDArray[Any]


class LocalStore:
    """Everything in this process: the same optimiser as on the servers, and bit for bit the same results."""

    def __init__(self) -> None:
        self.on_sent: Callable[[], object] = lambda: None  # there is nobody to send to
        self._version = 0
        self._optimiser = Optimiser()
        self._values: Sequence[Array] = ()
        self._state: list[tuple[Array, ...]] = []
        self._tables = Tables(0, even_table(1))

    @property
    def version(self) -> int:
        return self._version

    def home(self, declaration: Declaration) -> Sequence[Array]:
        return arrays_of(declaration)

    def start(self, declaration: Declaration, values: Sequence[Array]) -> None:
        self._optimiser = declaration.rule
        self._values = values
        self._state = self._optimiser.states(values)

    def gradient_buffers(self) -> Sequence[Array]:
        return [np.zeros_like(value) for value in self._values]

    def take(self, number: int, gradient: Array) -> bool:
        return all_finite(gradient)

    def stage(self, number: int, gradient: Array) -> bool:
        return self.take(number, gradient)

    def push(self, gradients: Sequence[Array], samples: int, pull: bool, rows: Pushes = NO_ROWS) -> None:
        self._version += 1
        for value, gradient, state in zip(self._values, gradients, self._state, strict=bool(samples)):
            self._optimiser.apply(value, gradient, state, self._version)
        pushed = {self._tables.declare(table).table.name: some for table, some in rows.items()}
        self._tables.promise(pushed, "this trainer")
        self._tables.apply([(pushed, 1.0)], self._version - 1, 1.0)

    def pull(self) -> None:
        """The values are here already."""

    def rows(self, table: Table, ids: Array) -> Array:
        return self._tables.declare(table).values(ids)

    def trained_rows(self, table: Table) -> Rows:
        shelf = self._tables.declare(table)
        return Rows(shelf.ids, shelf.values(shelf.ids)).summed()

    def set_position(self, position: Position) -> None:
        """The position is not used."""

    def begin_pass(self, number: int) -> None:
        """No other trainer waits."""

    def end_pass(self, number: int) -> None:
        """No other trainer waits."""
