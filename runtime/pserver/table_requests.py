"""Validation of table requests: an invalid one gets a message and changes nothing."""

from __future__ import annotations

from collections.abc import Sequence

from runtime.errors import Refused
from runtime.messages import training as messages
from runtime.parameters import row_blocks
from runtime.parameters.array_blocks import all_finite
from runtime.parameters.embedding_tables import Pushed, Rows, Shelf, Table, Tables, Unlike
from runtime.parameters.messages import Outcome
from runtime.protocol.connection import Block, Message
from runtime.pserver.requests import TrainerId

BAD_ROWS = "bad_rows"


def pushed(tables: Tables, request: Message, trainer: TrainerId) -> Pushed:
    """The rows that came with a step, by table. Raises Refused."""
    return {shelf.table.name: rows for shelf, rows in _named(tables, request, trainer, need_values=True)}


def pulled(tables: Tables, request: Message, trainer: TrainerId) -> list[Block]:
    """The rows of the requested ids, or with ``all`` every trained row. Raises Refused."""
    give = _trained if request.body.get("all") else _wanted
    return row_blocks.pack(give(shelf, asked) for shelf, asked in _named(tables, request, trainer, need_values=False))


def _trained(shelf: Shelf, asked: Rows) -> Rows:
    ids = shelf.ids.copy()
    return Rows(ids, shelf.values(ids))


def _wanted(shelf: Shelf, asked: Rows) -> Rows:
    """In the order of the ids, which the requester has."""
    return Rows(asked.ids[:0], shelf.values(asked.ids))


def _named(tables: Tables, request: Message, trainer: TrainerId, need_values: bool) -> list[tuple[Shelf, Rows]]:
    """Each table of a request, with its rows."""
    declared = _declared(request, trainer)
    try:
        rows = row_blocks.unpack(declared, request.blocks)
        shelves = [tables.declare(table) for table in declared]
    except Unlike as unlike:
        raise Refused(Outcome.CONFLICT, str(unlike)) from None
    except ValueError as error:
        raise Refused(
            BAD_ROWS, messages.TABLE_DATA_UNREADABLE(sender=f"trainer-{trainer.index}", error=error)
        ) from None
    for shelf, some in zip(shelves, rows, strict=True):
        _check(tables, shelf.table, some, trainer, need_values)
    return list(zip(shelves, rows, strict=True))


def _declared(request: Message, trainer: TrainerId) -> Sequence[Table]:
    try:
        return [Table.from_json(body) for body in request.body.get("tables", ())]
    except (KeyError, TypeError, ValueError) as error:
        raise Refused(
            "bad_declaration", messages.TABLE_DECLARATION_UNREADABLE(sender=f"trainer-{trainer.index}", error=error)
        ) from None


def _check(tables: Tables, table: Table, rows: Rows, trainer: TrainerId, need_values: bool) -> None:
    name, sender = table.name, f"trainer-{trainer.index}"
    ids, came = len(rows), len(rows.values)
    if need_values and ids != came:
        raise Refused(
            BAD_ROWS, messages.ROW_COUNT_MISMATCH(ids=f"{ids:,}", rows=f"{came:,}", name=f"{name!r}", sender=sender)
        )
    if not tables.is_local(table, rows.ids):
        raise Refused(BAD_ROWS, messages.ROWS_MISPLACED(name=f"{name!r}", sender=sender))
    if not all_finite(rows.values):
        raise Refused(Outcome.NOT_FINITE, messages.ROW_NOT_FINITE(name=f"{name!r}", sender=sender))
