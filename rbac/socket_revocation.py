"""What ends open sockets: whoever takes something away from an account wakes its sockets, which then look again.

The doorbell is a hint. A socket that misses it looks again within a minute by itself.
"""

from __future__ import annotations

from collections.abc import Iterable

from portal.common.doorbell import ring


def account_topic(user_id: int) -> str:
    """The doorbell's topic of an account."""
    return f"account:{user_id}"


def wake_sockets(user_ids: Iterable[int]) -> None:
    """After the commit, every open socket of these accounts looks again at what it may show."""
    for user_id in user_ids:
        ring(account_topic(user_id))
