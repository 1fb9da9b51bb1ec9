"""The errors of this room, beside those of ``portal.common.errors`` and ``datasets.storage.base``."""

from __future__ import annotations

from portal.common.errors import Conflict, RegattaError


class Exists(Conflict):
    """The name is taken."""

    code = "exists"


class Incomplete(Conflict):
    """Parts of a file, or files of a version, are not there yet. ``missing`` or ``files`` names them."""

    code = "incomplete"


class ChecksumMismatch(RegattaError):
    """The bytes that came are not those that were announced."""

    code = "checksum_mismatch"
    status = 422


class WrongLength(RegattaError):
    """A part has another length than it must have."""

    code = "wrong_length"
    status = 422


class CutOff(RegattaError):
    """The body ended before it was whole; most likely nobody reads this answer."""

    code = "cut_off"
    status = 400


class BadRange(RegattaError):
    """The Range header asks for bytes that the file does not have."""

    code = "bad_range"
    status = 416
