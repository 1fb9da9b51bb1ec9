"""A push that goes on while its trainer does something else."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future


class Pending:
    """What ``params.push_async`` gives. The parameters are fresh once ``result`` has returned, and torn before."""

    def __init__(self, future: Future[None], settle: Callable[[], int]) -> None:
        self._future = future
        self._settle = settle

    def done(self) -> bool:
        """Whether ``result`` would return at once."""
        return self._future.done()

    def result(self) -> int:
        """Wait, then give the version. Raises what ``push_pull`` would have raised."""
        return self._settle()
