"""Tables as user code sees them: rows by id, of which a step uses a few, such as the embeddings of its words.

    words = p.table("words", dim=64)
    x = words.pull(ids)                  # (..., 64)
    words.push(ids, gradient_of_x)       # of the same shape; sent with the step
    p.push_pull(gradients, n=len(ids))

Pushed rows belong to the step that the next push of the parameters makes. They are applied with it, once, with its
weight, or not at all if it is dropped.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from runtime.errors import UsageError
from runtime.messages import training as messages
from runtime.parameters.embedding_tables import Rows, Table, joined

Array = NDArray[Any]


class SharedTable:
    """One table. Made by ``params.table``.

    ``fetch`` returns the rows of different ids, ``fetch_all`` the trained ones.
    """

    def __init__(
        self,
        table: Table,
        fetch: Callable[[Table, Array], Array],
        fetch_all: Callable[[Table], Rows],
    ) -> None:
        self.table = table
        self._fetch = fetch
        self._fetch_all = fetch_all
        self._pushed: list[Rows] = []

    @property
    def name(self) -> str:
        return self.table.name

    @property
    def dim(self) -> int:
        return self.table.dim

    def pull(self, ids: Any) -> Array:
        """The present rows of ``ids``, integers in an array of any shape: float32 of that shape and ``dim``.

        The rows are a copy. Raises UsageError.
        """
        wanted = self._ids(ids)
        different, places = np.unique(wanted, return_inverse=True)
        rows = self._fetch(self.table, different) if different.size else np.empty((0, self.dim), "f4")
        return np.take(rows, places.reshape(-1), axis=0).reshape(*wanted.shape, self.dim)

    def push(self, ids: Any, grads: Array) -> None:
        """Push gradients of rows, float32 of the shape that ``pull(ids)`` returns; means over the samples of the step.

        Ids may repeat: their gradients are added up, and each row is updated once a step. Raises UsageError.
        """
        wanted = self._ids(ids)
        self._check(wanted, grads)
        if wanted.size:
            rows = Rows(wanted.reshape(-1), grads.reshape(-1, self.dim))
            summed = rows.summed()
            # The caller may write into the gradients before the step is made.
            self._pushed.append(Rows(rows.ids, rows.values.copy()) if summed is rows else summed)

    def all(self) -> tuple[Array, Array]:
        """Ids (n,) in order, and rows (n, dim), of all trained rows. The others have their initial values."""
        rows = self._fetch_all(self.table)
        return rows.ids, rows.values

    def take_pushed(self) -> Rows | None:
        """The rows pushed since the last call, for the present step."""
        pushed, self._pushed = self._pushed, []
        return joined(pushed).summed() if pushed else None

    def _ids(self, ids: Any) -> Array:
        array = np.asarray(ids)
        if array.size and (array.dtype.kind not in "iu" or array.dtype == np.uint64):
            raise UsageError(messages.TABLE_IDS_TYPE_WRONG(name=f"{self.name!r}", type=array.dtype))
        return array.astype("i8")

    def _check(self, ids: Array, grads: Array) -> None:
        if not isinstance(grads, np.ndarray):
            raise UsageError(messages.TABLE_GRADIENTS_NOT_AN_ARRAY(name=f"{self.name!r}", type=type(grads).__name__))
        expected = (*ids.shape, self.dim)
        if grads.shape != expected:
            raise UsageError(
                messages.TABLE_GRADIENTS_SHAPE_WRONG(name=f"{self.name!r}", shape=grads.shape, due=expected)
            )
        if grads.dtype != np.float32:
            raise UsageError(messages.TABLE_GRADIENTS_TYPE_WRONG(name=f"{self.name!r}", type=grads.dtype))
