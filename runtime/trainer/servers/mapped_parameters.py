"""The parameters of a server on the trainer's host, read from the server's memory."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from runtime.parameters import journal_layout
from runtime.parameters.declaration import BlockPlace
from runtime.protocol.shared_memory import Segment
from runtime.trainer.servers.memory_window import MOST_RUNS, Run, Window

Array = NDArray[Any]
# How often numbers that change meanwhile are read again before the version counts as gone.
READS = 4


class MappedParameters:
    """The parameters of one server in its shared memory.

    ``values`` are the blocks of the server, cut from the flat arrays of all parameters, and are filled from its
    segment. If those arrays are a ``window``, and the server keeps a journal, they show the segment itself for as long
    as the next version waits for this trainer.
    """

    def __init__(self, places: Sequence[BlockPlace], values: Sequence[Array], window: Window | None) -> None:
        self._places = places
        self._values = values
        self._window = window
        self._runs: Sequence[Run] = ()  # of the window that can show the segment
        self._shown = False  # whether they do
        self._segment: Segment | None = None
        self._marks = np.zeros(*journal_layout.MARKS)
        self._parameters: Sequence[Array] = ()
        self._journal: Sequence[Array] = ()

    @property
    def is_open(self) -> bool:
        """Whether there is a segment."""
        return self._segment is not None

    @property
    def wants_journal(self) -> bool:
        return self._window is not None

    def adopt(self, descriptor: int, journalled: bool) -> None:
        """Read the segment of a descriptor from now on. Raises OSError, ValueError."""
        self.close()
        sizes = [(value.size, value.dtype.str) for value in self._values]
        self._segment = Segment.adopt(descriptor, journal_layout.layout(sizes, journalled))
        self._marks, *arrays = self._segment.arrays
        self._parameters, self._journal = arrays[: len(sizes)], arrays[len(sizes) :]
        if self._window is not None and journalled:
            runs = self._window.runs(self._places, self._segment.offsets[1 : 1 + len(sizes)])
            self._runs = runs if len(runs) <= MOST_RUNS else ()

    def close(self) -> None:
        """Stop reading the segment."""
        if self._segment is not None:
            self._segment.close()
        self._segment, self._runs = None, ()

    def read(self, version: int, waited_for: bool) -> bool:
        """Fill ``values`` with the parameters; return whether they are those of ``version``.

        ``waited_for``: they do not change before this trainer has pushed.
        """
        if self._segment is None or not journal_layout.whole(self._marks, version):
            return False
        if not (self._shown or (waited_for and self._show(self._segment))):
            for value, parameter in zip(self._values, self._parameters, strict=True):
                np.copyto(value, parameter)
        return journal_layout.whole(self._marks, version)

    def _show(self, segment: Segment) -> bool:
        if self._window is None or not self._runs:
            return False
        self._shown = True
        self._window.show(self._runs, segment.descriptor)
        return True

    def keep(self, version: int) -> bool:
        """Make the values private to this process; return whether they are those of ``version``, if they were.

        This includes a version whose successor was interrupted because the server was killed.
        """
        if not self._shown or self._window is None:
            return True
        was_whole = journal_layout.whole(self._marks, version)
        self._window.keep(self._runs)
        self._shown = False
        return (was_whole and journal_layout.whole(self._marks, version)) or self._read_back(version)

    def _read_back(self, version: int) -> bool:
        """Restore a version from parameters and journal; return whether it is still available."""
        total = sum(value.size for value in self._values)
        for _ in range(READS):
            before = self._marks.tobytes()
            count = journal_layout.kept(self._marks, version, total)
            if count is None:
                return False
            journal_layout.restore(self._values, self._parameters, self._journal, count)
            if self._marks.tobytes() == before:
                return True
        return False
