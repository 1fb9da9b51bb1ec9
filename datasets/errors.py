"""Errors of this app, in addition to those of ``portal.common.errors`` and ``datasets.storage.base``."""

from __future__ import annotations

from portal.common.errors import Conflict, RegattaError


class Exists(Conflict):
    """The name is already taken."""

    code = "exists"


class Incomplete(Conflict):
    """Parts of a file, or files of a version, are missing. ``missing`` or ``files`` names them."""

    code = "incomplete"


class ChecksumMismatch(RegattaError):
    """The bytes received do not match the announced checksum."""

    code = "checksum_mismatch"
    status = 422


class WrongLength(RegattaError):
    """A part does not have the required length."""

    code = "wrong_length"
    status = 422


class CutOff(RegattaError):
    """The body ended early. The client has most likely disconnected and does not read this response."""

    code = "cut_off"
    status = 400


class BadRange(RegattaError):
    """The Range header requests bytes beyond the end of the file."""

    code = "bad_range"
    status = 416
