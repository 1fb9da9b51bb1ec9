"""Errors that a notebook shows without the frames of this package."""

from __future__ import annotations

from collections.abc import Sequence

from regatta.errors import BadFile


class CaptureError(BadFile):
    """Code of a notebook that cannot become a job. ``problems`` has one message for each reason."""

    def __init__(self, problems: Sequence[str]) -> None:
        super().__init__("\n".join(problems))
        self.problems = tuple(problems)

    def _render_traceback_(self) -> list[str]:
        return ["This code cannot become a job:", *self.problems]


class CellSyntaxError(CaptureError):
    """Syntax error in a cell, at the line numbers of the cell."""

    def __init__(self, error: SyntaxError, cell: str, hint: str = "") -> None:
        column = max((error.offset or 1) - 1, 0)
        text = (error.text or "").rstrip("\n")
        self.line = error.lineno or 0
        super().__init__(
            [f"{cell}, line {self.line}", f"    {text}", f"    {' ' * column}^", f"SyntaxError: {error.msg}{hint}"]
        )
