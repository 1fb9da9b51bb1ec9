"""The interface between the parameters as user code sees them and their storage."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from runtime.checkpoint.data_position import Position
from runtime.parameters.declaration import Declaration
from runtime.parameters.embedding_tables import Rows, Table

Array = NDArray[Any]
# The rows that a step pushes, by table.
Pushes = Mapping[Table, Rows]
NO_ROWS: Pushes = {}


def arrays_of(declaration: Declaration) -> Sequence[Array]:
    """A flat array for every parameter."""
    return [np.zeros(size, dtype) for size, dtype in declaration.layout]


class Store(Protocol):
    """The storage of parameters. Arrays are flat, in the order of the declaration; ``values`` are written in place.

    ``on_sent`` is called in every request to other processes, once all of it has been sent.
    """

    on_sent: Callable[[], object]

    @property
    def version(self) -> int:
        """Updates applied so far."""

    def home(self, declaration: Declaration) -> Sequence[Array]:
        """Arrays for ``start``, which a pull fills without a copy if possible. Only the store writes to them."""

    def start(self, declaration: Declaration, values: Sequence[Array]) -> None:
        """Agree on the parameters; afterwards ``values`` contain the common ones."""

    def gradient_buffers(self) -> Sequence[Array]:
        """Arrays for gradients that a push does not need to copy."""

    def take(self, number: int, gradient: Array) -> bool:
        """Take the gradient of parameter ``number`` for the next push; return whether it is finite throughout."""

    def stage(self, number: int, gradient: Array) -> bool:
        """``take`` a gradient, and begin to push it ahead of the others. From any thread.

        A gradient that is taken or staged again replaces it.
        """

    def push(self, gradients: Sequence[Array], samples: int, pull: bool, rows: Pushes = NO_ROWS) -> None:
        """Apply the taken gradients, means over ``samples``, and ``rows``; with ``pull`` fetch the new values.

        Without ``samples`` there is nothing to apply, but others need not wait for it either.
        """

    def pull(self) -> None: ...

    def rows(self, table: Table, ids: Array) -> Array:
        """The present rows (n, dim) of ``ids``, which differ."""

    def trained_rows(self, table: Table) -> Rows:
        """All rows that have been updated, in order of id."""

    def set_position(self, position: Position) -> None:
        """Set the position in the data of the following pushes."""

    def begin_pass(self, number: int) -> None: ...

    def end_pass(self, number: int) -> None: ...
