"""Tables of rows by id, such as embeddings: the part of them on one server. Pure.

A table has as many rows as there are ids. A row takes memory from its first update on; before that, its values follow
from the table's seed and its id (``initializers``). Rows are spread over the servers by a hash of their id to the same
slots as blocks. In one update a row is changed once, by the sum of all that was pushed for it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import repeat
from typing import Any

import numpy as np
from numpy.typing import NDArray

from runtime.errors import RegattaError
from runtime.memory_headroom import headroom
from runtime.messages import paragraph
from runtime.messages import training as messages
from runtime.parameters import initializers, lr_schedules, optimisers
from runtime.parameters.initializers import Initial, Uniform
from runtime.parameters.kernels import numpy_kernels
from runtime.parameters.optimisers import SGD, Optimiser
from runtime.parameters.sharding import BLOCK_BYTES, servers_of_rows

Array = NDArray[Any]
Buffer = bytes | bytearray | memoryview

ITEM_BYTES = 4
LARGEST_DIM = BLOCK_BYTES // ITEM_BYTES
# The overhead of every row in bytes: its id, the count of its updates, its place in the index.
_BESIDE_BYTES = 8 + 4 + 150
# A table grows by at least this many rows, and by half of its size.
_LEAST_GROWTH = 1024
# The memory that a server needs for everything else while it grows a table.
_SPARE_BYTES = 64 << 20
# Rows that are updated together: their operands fit a second-level cache.
_PIECE_ELEMENTS = 1 << 16


class Full(RegattaError):
    """There is no memory for more rows."""


class Unlike(RegattaError):
    """Two trainers use one name for different tables."""


@dataclass(frozen=True)
class Table:
    """What trainers agree on: rows of ``dim`` float32, their initial values, the rule that updates them."""

    name: str
    dim: int
    init: Initial = field(default_factory=Uniform)
    optimiser: Optimiser = field(default_factory=SGD)
    seed: int = 0

    def __post_init__(self) -> None:
        if not isinstance(self.dim, int) or isinstance(self.dim, bool) or not 1 <= self.dim <= LARGEST_DIM:
            raise ValueError(
                messages.TABLE_DIM_INVALID(name=f"{self.name!r}", most=f"{LARGEST_DIM:,}", dim=f"{self.dim!r}")
            )

    @property
    def kinds(self) -> int:
        """The number of arrays of a piece: ids, numbers of updates, values, and those of the optimiser's state."""
        return 3 + self.optimiser.slots

    @property
    def row_bytes(self) -> int:
        """The memory of a row in bytes, with its optimiser's state and its overhead."""
        return ITEM_BYTES * self.dim * (1 + self.optimiser.slots) + _BESIDE_BYTES

    @property
    def piece_rows(self) -> int:
        """The number of rows of a piece, so that none of its arrays is larger than a block."""
        return BLOCK_BYTES // max(8, ITEM_BYTES * self.dim)

    def to_json(self) -> dict[str, Any]:
        init, optimiser = self.init.to_json(), self.optimiser.to_json()
        return {"name": self.name, "dim": self.dim, "init": init, "optimiser": optimiser, "seed": self.seed}

    @classmethod
    def from_json(cls, body: Mapping[str, Any]) -> Table:
        """Read ``to_json``'s form. Raises ValueError, KeyError, TypeError."""
        init, optimiser = initializers.from_json(body["init"]), optimisers.from_json(body["optimiser"])
        return cls(str(body["name"]), body["dim"], init, optimiser, int(body["seed"]))


@dataclass(frozen=True)
class Rows:
    """Rows of a table, or gradients of them: ``values`` (n, dim) float32, ``ids`` (n,) int64."""

    ids: Array
    values: Array

    def __len__(self) -> int:
        return int(self.ids.size)

    def part(self, which: Array) -> Rows:
        """The rows that a mask or an index selects."""
        return Rows(self.ids[which], self.values[which])

    def summed(self) -> Rows:
        """One row for each id, in order of id: the sum of all rows of that id in their order.

        Rows that are so already are returned unchanged.
        """
        if bool((self.ids[1:] > self.ids[:-1]).all()):
            return self
        order = np.argsort(self.ids, kind="stable")
        ids = self.ids[order]
        first = np.concatenate(([True], ids[1:] != ids[:-1]))[: ids.size]
        values = self.values[order[first]]
        if not first.all():
            np.add.at(values, np.cumsum(first)[~first] - 1, self.values[order[~first]])
        return Rows(ids[first], values)


def joined(parts: Sequence[Rows]) -> Rows:
    """Concatenate rows."""
    if len(parts) == 1:
        return parts[0]
    return Rows(np.concatenate([part.ids for part in parts]), np.concatenate([part.values for part in parts]))


# The rows that a step pushes for its tables, by name.
Pushed = Mapping[str, Rows]


@dataclass(frozen=True)
class Piece:
    """Some rows of a table with their whole state. ``arrays`` are values and state, each (n, dim)."""

    ids: Array
    updates: Array
    arrays: tuple[Array, ...]

    @property
    def kept(self) -> tuple[Array, ...]:
        """All arrays, in the order of a checkpoint."""
        return (self.ids, self.updates, *self.arrays)

    @classmethod
    def of_bytes(cls, table: Table, parts: Sequence[Buffer]) -> Piece:
        """Create a piece from the bytes of ``kept``."""
        ids, updates, *arrays = parts
        shape = (-1, table.dim)
        return cls(
            np.frombuffer(ids, "<i8"),
            np.frombuffer(updates, "<i4"),
            tuple(np.frombuffer(part, "<f4").reshape(shape) for part in arrays),
        )


class Shelf:
    """The rows of one table on this server."""

    def __init__(self, table: Table) -> None:
        self.table = table
        self._places: dict[int, int] = {}
        self._ids = np.empty(0, "i8")
        self._updates = np.empty(0, "i4")
        self._arrays = [np.empty((0, table.dim), "f4") for _ in range(1 + table.optimiser.slots)]

    def __len__(self) -> int:
        return len(self._places)

    @property
    def ids(self) -> Array:
        """The ids of the trained rows, in the order of their arrival."""
        return self._ids[: len(self)]

    def values(self, ids: Array) -> Array:
        """The rows (n, dim) of ``ids``, in their order; a copy."""
        places = self._find(ids)
        known = places >= 0
        if known.all():
            return np.take(self._arrays[0], places, axis=0)
        found = np.empty((ids.size, self.table.dim), "f4")
        found[known] = self._arrays[0][places[known]]
        found[~known] = self._fresh(ids[~known])
        return found

    def unseen(self, ids: Array) -> int:
        """The number of ``ids`` without memory."""
        return int(np.count_nonzero(~self.holds(ids)))

    def holds(self, ids: Array) -> Array:
        """Which of ``ids`` (n,) have memory, as a mask."""
        found: Array = self._find(ids) >= 0
        return found

    def reserve(self, more: int) -> None:
        """Allocate memory for ``more`` new rows. Raises MemoryError; nothing has changed then."""
        needed = len(self) + more
        if needed <= self._ids.size:
            return
        size = max(needed, len(self) + max(_LEAST_GROWTH, len(self) // 2))
        if not self._fits(size):
            size = needed  # as little as possible
        if not self._fits(size):
            raise MemoryError
        grown = [_grown(array, size, len(self)) for array in (self._ids, self._updates, *self._arrays)]
        self._ids, self._updates, *self._arrays = grown

    def _fits(self, size: int) -> bool:
        """Whether there is memory for ``size`` rows besides the present ones, which stay until they are copied."""
        return size * self.table.row_bytes + _SPARE_BYTES <= headroom()

    def apply(
        self, gradients: Rows, rounds: float, scale: float, changing: Callable[[Array], object] = lambda places: None
    ) -> None:
        """Update each row once; the ids differ, and memory is reserved. ``scale`` multiplies the learning rate.

        The learning rate schedule uses ``rounds``, the correction of Adam's means each row's own count. ``changing`` is
        called with the places of the rows before they change.
        """
        rate = lr_schedules.rate_at(self.table.optimiser.lr, rounds) * scale
        places = self._admit(gradients.ids)
        changing(places)
        step = max(1, _PIECE_ELEMENTS // self.table.dim)
        for start in range(0, places.size, step):
            part = slice(start, start + step)
            self._apply(places[part], gradients.values[part], rate)

    def _apply(self, places: Array, gradients: Array, rate: float) -> None:
        rule = self.table.optimiser
        counts = self._updates[places] + 1
        self._updates[places] = counts
        rates = (rule.corrections(counts) * rate).astype("f4")[:, None]
        constants = [_column(constant) for constant in rule.constants(counts)]
        taken = [np.take(array, places, axis=0) for array in self._arrays]
        values, *state = taken
        numpy_kernels.KERNELS[type(rule).__name__](values, gradients, *state, rates, *constants, np.empty_like(values))
        for array, fresh in zip(self._arrays, taken, strict=True):
            array[places] = fresh

    def write(self, ids: Array, values: Array) -> None:
        """Write these values (n, dim) to the rows of ``ids``, which differ; memory is reserved. Their state stays."""
        self._arrays[0][self._admit(ids)] = values

    def pieces(self) -> Iterator[Piece]:
        """All trained rows, as views, each of at most a block's size."""
        step = self.table.piece_rows
        for start in range(0, len(self), step):
            part = slice(start, min(start + step, len(self)))
            yield Piece(self._ids[part], self._updates[part], tuple(array[part] for array in self._arrays))

    def take(self, piece: Piece) -> None:
        """Take over rows of another server or an earlier process; memory is reserved."""
        places = self._admit(piece.ids)
        self._updates[places] = piece.updates
        for array, values in zip(self._arrays, piece.arrays, strict=True):
            array[places] = values

    def _find(self, ids: Array) -> Array:
        """The place of each row; -1 if it has none."""
        return np.fromiter(map(self._places.get, ids.tolist(), repeat(-1)), "i8", ids.size)

    def _admit(self, ids: Array) -> Array:
        """The place of each row, with initial values and state for new ones."""
        places = self._find(ids)
        new = np.flatnonzero(places < 0)
        if new.size:
            fresh = np.arange(len(self), len(self) + new.size)
            places[new], new_ids = fresh, ids[new]
            self._ids[fresh], self._updates[fresh] = new_ids, 0
            self._arrays[0][fresh] = self._fresh(new_ids)
            for state in self._arrays[1:]:
                state[fresh] = 0
            self._places.update(zip(new_ids.tolist(), fresh.tolist(), strict=True))
        return places

    def _fresh(self, ids: Array) -> Array:
        return self.table.init.rows(self.table.seed, ids, self.table.dim)


class Tables:
    """All tables of server number ``server``; ``slots`` maps slots to servers."""

    def __init__(self, server: int, slots: Sequence[int]) -> None:
        self._server = server
        self._slots = slots
        self._shelves: dict[str, Shelf] = {}
        self._promised: dict[str, int] = {}  # new rows that wait for the next update

    def __iter__(self) -> Iterator[Shelf]:
        return iter(self._shelves.values())

    def declare(self, table: Table) -> Shelf:
        """The shelf of a table, created at its first use. Raises Unlike."""
        shelf = self._shelves.get(table.name)
        if shelf is None:
            shelf = self._shelves[table.name] = Shelf(table)
        elif shelf.table != table:
            raise Unlike(_difference(shelf.table, table))
        return shelf

    def is_local(self, table: Table, ids: Array) -> bool:
        """Whether all of these rows are on this server."""
        return bool((servers_of_rows(table.name, ids, self._slots) == self._server).all())

    def promise(self, pushed: Pushed, sender: str) -> None:
        """Reserve memory for these rows in the next update too. Raises Full."""
        for name, rows in pushed.items():
            shelf = self._shelves[name]
            more = self._promised.get(name, 0) + shelf.unseen(rows.ids)
            self._reserve(shelf, more, sender)
            self._promised[name] = more

    def apply(
        self,
        pushed: Iterable[tuple[Pushed, float]],
        rounds: float,
        scale: float,
        changing: Callable[[Table, Array], object] = lambda table, places: None,
    ) -> None:
        """Update rows by the promised pushes of several trainers, each with its weight, in this order.

        ``rounds``, ``scale``: as in ``Shelf.apply``. ``changing`` is called with the places of a table's rows before
        they change.
        """
        parts: dict[str, list[Rows]] = {}
        for one, weight in pushed:
            for name, rows in one.items():
                weighted = rows if weight == 1 else Rows(rows.ids, rows.values * np.float32(weight))
                parts.setdefault(name, []).append(weighted)
        for name, some in parts.items():
            shelf = self._shelves[name]
            shelf.apply(joined(some).summed(), rounds, scale, partial(changing, shelf.table))
        self._promised.clear()

    def take(self, table: Table, piece: Piece) -> None:
        """Take over the rows of a piece that belong to this server. Raises Full, Unlike."""
        here = servers_of_rows(table.name, piece.ids, self._slots) == self._server
        kept = Piece(piece.ids[here], piece.updates[here], tuple(array[here] for array in piece.arrays))
        shelf = self.declare(table)
        self._reserve(shelf, shelf.unseen(kept.ids), "a checkpoint")
        shelf.take(kept)

    def _reserve(self, shelf: Shelf, more: int, owner: str) -> None:
        try:
            shelf.reserve(more)
        except MemoryError:
            raise Full(
                paragraph(
                    messages.TABLE_MEMORY_FULL(
                        name=f"{shelf.table.name!r}",
                        server=self._server,
                        rows=f"{len(shelf):,}",
                        more=f"{more:,}",
                        sender=owner,
                    ),
                    messages.ADD_PSERVER_MEMORY(),
                )
            ) from None


def _column(constant: float | Array) -> float | Array:
    """A constant of each row as a column of the table's type; a constant of all rows unchanged."""
    return constant.astype("f4")[:, None] if isinstance(constant, np.ndarray) else constant


def _grown(array: Array, size: int, used: int) -> Array:
    larger = np.empty((size, *array.shape[1:]), array.dtype)
    larger[:used] = array[:used]
    return larger


# The properties that may differ, and their form in a message.
_TRAITS: Mapping[str, Callable[[Table], object]] = {
    "rows of {} numbers": lambda table: table.dim,
    "init={}": lambda table: table.init,
    "opt={}": lambda table: table.optimiser,
    "seed={}": lambda table: table.seed,
}


def _difference(ours: Table, theirs: Table) -> str:
    words, trait = next((words, trait) for words, trait in _TRAITS.items() if trait(ours) != trait(theirs))
    mine, other = words.format(trait(ours)), words.format(trait(theirs))
    return messages.TABLE_DECLARATIONS_DIFFER(name=f"{ours.name!r}", theirs=mine, ours=other)
