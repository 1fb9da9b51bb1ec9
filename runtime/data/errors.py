"""Errors of data files.

FormatError        a file is not what its format requires, is damaged, or is refused
├── RecordIOError  (recordio) of RecordIO
├── UnknownFormat  a file is of none of the formats that are read here
└── RecordError    the file is valid, and one record in it makes no sense
"""

from __future__ import annotations

from runtime.errors import RegattaError


class FormatError(RegattaError):
    """A file is not what its format requires, is damaged, or has unsupported content. The message names the place."""


class RecordError(FormatError):
    """One record makes no sense, or cannot be written. Other records may be valid."""


class UnknownFormat(FormatError):
    """A file is of no format that is read here.

    ``packed``: because it is compressed as a whole. ``foreign``: it is of another format, which the message names.
    """

    def __init__(self, why: str, *, packed: bool = False, foreign: bool = False) -> None:
        super().__init__(why)
        self.packed = packed
        self.foreign = foreign
