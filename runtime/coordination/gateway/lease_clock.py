"""When the gateway ends a lease: its holder has not kept it alive for as long as it was granted. Pure.

etcd keeps a lease longer than its holder asked for, so that an outage of all replicas of the gateway does not end it.
A replica watches the leases that were granted or kept alive through it. Another replica may have kept one alive since:
etcd knows when it was last kept.
"""

from __future__ import annotations

from dataclasses import dataclass

# etcd reports whole seconds: a lease may have been kept that much later than its answer says.
_ROUNDING_SECONDS = 1.0


@dataclass
class Watched:
    """A lease with the time to live that its holder asked for, in seconds, and when it was last known to be kept."""

    lease: int
    account: str
    seconds: int
    kept: float


class LeaseClock:
    """The leases that this replica watches. Times are monotonic seconds."""

    def __init__(self) -> None:
        self._watched: dict[int, Watched] = {}
        self._disturbed = float("-inf")

    def __len__(self) -> int:
        return len(self._watched)

    def kept(self, lease: int, account: str, seconds: int, now: float) -> None:
        """Note that etcd has granted the lease or kept it alive."""
        self._watched[lease] = Watched(lease, account, seconds, now)

    def gone(self, lease: int) -> None:
        self._watched.pop(lease, None)

    def disturbed(self, now: float) -> None:
        """Note that keepalives may not have reached etcd, for no fault of the holders: all leases count as kept now."""
        self._disturbed = now

    def overdue(self, now: float) -> list[Watched]:
        """Return the leases that were not kept through this replica in time. Another one may have kept them."""
        return [one for one in self._watched.values() if now - max(one.kept, self._disturbed) > one.seconds]

    def must_end(self, lease: int, granted: int, left: int, now: float) -> bool:
        """Return whether nobody has kept the lease in time, by etcd's answer: granted seconds, and seconds left."""
        watched = self._watched.get(lease)
        if watched is None:
            return False
        watched.kept = max(watched.kept, now - (granted - left - _ROUNDING_SECONDS))
        return now - max(watched.kept, self._disturbed) > watched.seconds
