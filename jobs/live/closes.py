"""Codes with which websockets are closed, and their reasons."""

from __future__ import annotations

import logging
from collections.abc import Mapping

from portal.common import outages

NOT_SIGNED_IN, WRONG_ORIGIN, NOWHERE, IDLE, TOO_SLOW, TOO_MANY = 4401, 4403, 4404, 4408, 4409, 4429
FAILED, UNAVAILABLE = 1011, 1013
REASONS: Mapping[int, str] = {
    NOT_SIGNED_IN: "Sign in, then connect again.",
    WRONG_ORIGIN: "This page does not belong to the portal.",
    NOWHERE: "There is no socket at this address; streams are at /ws/v1/stream.",
    IDLE: "Nothing was subscribed for a long time.",
    TOO_SLOW: "The connection is too slow; connect again from your cursor.",
    FAILED: "Something went wrong on our side; connect again from your cursor.",
    UNAVAILABLE: "The portal's database is not responding; connect again from your cursor in a few seconds.",
    TOO_MANY: "You have too many connections open; close some pages.",
}

_log = logging.getLogger(__name__)


def code_after(error: Exception, message: str) -> int:
    """Log an error and return the code with which it closes the socket."""
    if outages.unavailable(error) is not None:
        return UNAVAILABLE
    _log.error("%s", message, exc_info=error)
    return FAILED
