"""The client address behind trusted proxies, and whether the client's connection was encrypted. Pure.

Every proxy appends to ``X-Forwarded-For`` the address that called it. A caller may have written any beginning. So the
list is read from its end, and only as long as each address is that of a proxy that the operator trusts
(``REGATTA_TRUSTED_PROXIES``). Headers of an untrusted peer are ignored.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Sequence

Address = ipaddress.IPv4Address | ipaddress.IPv6Address
Network = ipaddress.IPv4Network | ipaddress.IPv6Network
_NARROW = {4: 24, 6: 64}


def network(text: str) -> Network:
    """Return an address, or a network such as ``10.0.0.0/8``. Raises ValueError, also for a network with host bits."""
    return ipaddress.ip_network(text)


def too_wide(networks: Sequence[Network]) -> list[Network]:
    """Return the networks that hold more than the proxies of one site: wider than /24, or /64 of IPv6."""
    return [found for found in networks if found.prefixlen < _NARROW[found.version]]


def address(text: str) -> Address | None:
    """Return the address in one item of the header, with or without a port and brackets; None when there is none."""
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
    """Return the IPv4 address of one that came through an IPv6 socket; remove the zone of a link-local address."""
    if isinstance(found, ipaddress.IPv6Address):
        return found.ipv4_mapped or ipaddress.IPv6Address(int(found))
    return found


def is_trusted(found: Address | None, trusted: Sequence[Network]) -> bool:
    """Return whether the address is one of the operator's proxies."""
    return found is not None and any(found in each for each in trusted)


def caller(peer: str, forwarded_for: str, trusted: Sequence[Network]) -> Address | None:
    """Return the address of the caller. ``peer`` is the other end of the connection; None when it has no address (a
    unix socket).

    An item that is no address ends the search: an item that no trusted proxy wrote is not skipped.
    """
    found = address(peer)
    for item in reversed(forwarded_for.split(",") if forwarded_for else []):
        before = address(item) if is_trusted(found, trusted) else None
        if before is None:
            break
        found = before
    return found


def is_encrypted(peer: str, forwarded_proto: str, trusted: Sequence[Network]) -> bool:
    """Return whether a trusted proxy reports encryption. Of several values the last counts: the calling proxy wrote
    it."""
    last = forwarded_proto.rpartition(",")[2].strip().lower()
    return is_trusted(address(peer), trusted) and last == "https"
