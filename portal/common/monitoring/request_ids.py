"""Choice of a request's id. Pure but for the random number."""

from __future__ import annotations

import re
import secrets
from collections.abc import Sequence

from portal.common import trusted_proxies
from portal.common.trusted_proxies import Network

HEADER = "X-Request-ID"
_WELL_FORMED = re.compile(r"[A-Za-z0-9._-]{1,64}")


def choose(peer: str, given: str, trusted: Sequence[Network]) -> str:
    """Return the id that a trusted proxy gave, if it is well-formed; else a fresh one.

    ``peer`` is the address of the other end of the connection. A caller that could choose its id could give several
    requests the same one, and mislead readers of the logs and the audit log.
    """
    if given and trusted_proxies.is_trusted(trusted_proxies.address(peer), trusted) and _WELL_FORMED.fullmatch(given):
        return given
    return secrets.token_hex(8)
