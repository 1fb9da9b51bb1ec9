"""Revocation of open sockets: a change that reduces an account's rights wakes its sockets, which then check them again.

The doorbell is a hint. A socket that misses it checks within a minute by itself.
"""

from __future__ import annotations

from collections.abc import Iterable

from portal.common.doorbell import ring


def account_topic(user_id: int) -> str:
    """Return the doorbell's topic of an account."""
    return f"account:{user_id}"


def wake_sockets(user_ids: Iterable[int]) -> None:
    """After the commit, make every open socket of these accounts check its rights again."""
    for user_id in user_ids:
        ring(account_topic(user_id))
