"""What is recorded of the latest execution of one cell (pure)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from runtime.notebook.cell_outputs import CellOutputs, Operation, Output

# Characters of the outputs of one cell: in the record and the file, and in a page.
STORED = 10_000_000
SHOWN = 2_000_000


class CellRecord:
    """The execution that began last, and its outputs as they are stored and as pages show them."""

    def __init__(self, queued: Operation, number: int) -> None:
        self.cell: str = queued["cell"]
        self.execution: str = queued["execution"]
        self.session: str = queued["session"]
        self.direct: bool = queued["direct"]
        self.source: str = queued["source"]
        # Numbers of the first and of the last operation.
        self.first = self.last = number
        self.count: int | None = None
        self.ended = False
        # Whether the file has had the cell. If it lacks it now, somebody has removed it there.
        self.in_file = False
        self.stored = CellOutputs(STORED)
        self.shown = CellOutputs(SHOWN)
        # Places of the displays that can be updated.
        self.displays: dict[str, list[int]] = {}

    def apply(self, operation: Operation, number: int) -> tuple[list[Operation], list[Operation]]:
        """Apply an operation of this execution. Return what to store, and what to send to pages."""
        self.last = number
        match operation["op"]:
            case "count":
                self.count = operation["count"]
            case "end":
                self.ended = True
            case "saved":
                self.in_file = True
                return [operation], []
            case "clear":
                self.displays.clear()
        display = operation.get("display")
        place = len(self.stored)
        made = self.stored.apply(operation), self.shown.apply(operation)
        if display is not None and not self.stored.full:
            self.displays.setdefault(display, []).append(place)
        return made

    def operations(self, outputs: list[Output]) -> Iterator[Operation]:
        """Yield operations that lead to this state from any other."""
        about: dict[str, Any] = {"cell": self.cell, "execution": self.execution}
        begin = {"session": self.session, "direct": self.direct, "source": self.source}
        yield {"op": "queued", **about, **begin}
        if self.in_file:
            yield {"op": "saved", **about}
        if self.count is not None:
            yield {"op": "count", **about, "count": self.count}
        for output in outputs:
            yield {"op": "append", **about, "output": output}
        if self.ended:
            yield {"op": "end", **about}
