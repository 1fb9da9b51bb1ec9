"""Which caller stands behind proxies, and whether the way to the first of them was encrypted. Pure.

Every proxy adds to ``X-Forwarded-For`` the address that it was called from, at the end. A caller may have written any
beginning; so the list is read from its end, and only as long as each address is that of a proxy that the operator
trusts (``REGATTA_TRUSTED_PROXIES``). Whoever is not trusted is believed nothing but that it calls.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Sequence

Address = ipaddress.IPv4Address | ipaddress.IPv6Address
Network = ipaddress.IPv4Network | ipaddress.IPv6Network


def network(text: str) -> Network:
    """An address, or a network such as ``10.0.0.0/8``. Raises ValueError; also for a network with bits of a host."""
    return ipaddress.ip_network(text)


def address(text: str) -> Address | None:
    """The address in one item of the header, with or without a port and brackets; None where there is none."""
    bare = text.strip().strip('"')
    if bare.startswith("["):
        bare = bare[1:].partition("]")[0]
    elif bare.count(":") == 1:
        bare = bare.partition(":")[0]
    try:
        return plain(ipaddress.ip_address(bare))
    except ValueError:
        return None


def plain(found: Address) -> Address:
    """An IPv4 address that came through an IPv6 socket as the IPv4 address that it is; no zone of a link."""
    if isinstance(found, ipaddress.IPv6Address):
        return found.ipv4_mapped or ipaddress.IPv6Address(int(found))
    return found


def is_trusted(found: Address | None, trusted: Sequence[Network]) -> bool:
    """Whether this is one of the operator's proxies."""
    return found is not None and any(found in each for each in trusted)


def caller(peer: str, forwarded_for: str, trusted: Sequence[Network]) -> Address | None:
    """Who calls. ``peer`` is the other end of the connection. None where that has no address (a unix socket).

    An item that is no address ends the search: what a trusted proxy did not write itself is not looked through.
    """
    found = address(peer)
    for item in reversed(forwarded_for.split(",") if forwarded_for else []):
        before = address(item) if is_trusted(found, trusted) else None
        if before is None:
            break
        found = before
    return found


def is_encrypted(peer: str, forwarded_proto: str, trusted: Sequence[Network]) -> bool:
    """Whether a trusted proxy says so. Of several words the last counts: the proxy that calls us wrote it."""
    last = forwarded_proto.rpartition(",")[2].strip().lower()
    return is_trusted(address(peer), trusted) and last == "https"
