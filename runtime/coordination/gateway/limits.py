"""Limits of what one account may use of etcd and of the gateway, per replica of the gateway. Pure.

Each check returns the text of the refusal, or an empty text.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, TypeVar

_MIB = 1024 * 1024
_T = TypeVar("_T")

TOO_MANY_CALLS = "coordination gateway: too many calls of this account; try again later"
TOO_MANY_WRITES = "coordination gateway: too many writes of this account; try again later"
TOO_MANY_BYTES = "coordination gateway: too many bytes written by this account; try again later"
TOO_MANY_READ = "coordination gateway: too many bytes read by this account; try again later"
TOO_MANY_LEASES = "coordination gateway: too many leases of this account; try again later"
TOO_MANY_STREAMS = "coordination gateway: too many streams of this account; close some"
TOO_MANY_SIGN_INS = "coordination gateway: too many sign-ins of this account; try again later"
TOO_MANY_WATCHES = "coordination gateway: too many watches on one stream; open another stream"
TOO_MUCH_STORED = "coordination gateway: this account stores too much; delete some of its keys"
TTL_TOO_LONG = "coordination gateway: the time to live of the lease is too long"


@dataclass(frozen=True)
class Rate:
    """An amount per second, and the amount that may be used at once."""

    per_second: float
    burst: float


@dataclass(frozen=True)
class Limits:
    """Limits per account. Sign-ins count per account and address of the sender: nobody can lock another pod out."""

    calls: Rate = Rate(500.0, 5_000.0)
    writes: Rate = Rate(200.0, 5_000.0)
    written_bytes: Rate = Rate(256 * 1024.0, 32.0 * _MIB)
    read_bytes: Rate = Rate(16.0 * _MIB, 128.0 * _MIB)
    grants: Rate = Rate(10.0, 1_000.0)
    sign_ins: Rate = Rate(5.0, 60.0)
    failed_sign_ins: Rate = Rate(0.2, 10.0)
    # Of all accounts from one address, which can be that of a whole node.
    sign_ins_of_host: Rate = Rate(20.0, 500.0)
    failed_sign_ins_of_host: Rate = Rate(2.0, 100.0)
    leases: int = 4_000
    streams: int = 1_000
    watches_per_stream: int = 8
    lease_seconds: int = 3_600
    # Keys and values together. They are counted before the first put, and again after a quarter as much was written.
    stored_bytes: int = 64 * _MIB


class Bucket:
    """Token bucket. It begins full."""

    def __init__(self, rate: Rate, now: float) -> None:
        self._rate = rate
        self._level = rate.burst
        self._at = now

    def has(self, amount: float, now: float) -> bool:
        """Return whether the amount may be used now. An amount above the burst needs a full bucket."""
        self._level = min(self._rate.burst, self._level + (now - self._at) * self._rate.per_second)
        self._at = now
        return self._level >= min(amount, self._rate.burst)

    def spend(self, amount: float) -> None:
        """Use the amount, also beyond what is there: the debt is refilled first."""
        self._level -= amount

    def take(self, amount: float, now: float) -> bool:
        """Use the amount if it is there."""
        if not self.has(amount, now):
            return False
        self.spend(amount)
        return True


class Recent(Generic[_T]):
    """Bounded table that drops the entry which was not used for the longest time."""

    def __init__(self, make: Callable[[float], _T], most: int = 20_000) -> None:
        self._make = make
        self._most = most
        self._entries: OrderedDict[str, _T] = OrderedDict()

    def get(self, key: str, now: float) -> _T:
        entry = self._entries.pop(key, None)
        if entry is None:
            entry = self._make(now)
        self._entries[key] = entry
        if len(self._entries) > self._most:
            self._entries.popitem(last=False)
        return entry


class Usage:
    """Usage of one account."""

    def __init__(self, limits: Limits, now: float) -> None:
        self._limits = limits
        self._calls = Bucket(limits.calls, now)
        self._writes = Bucket(limits.writes, now)
        self._written = Bucket(limits.written_bytes, now)
        self._read = Bucket(limits.read_bytes, now)
        self._grants = Bucket(limits.grants, now)
        self._leases: dict[int, float] = {}  # the time at which each may have ended
        self._streams = 0
        self._stored = 0
        self._written_since_count = float("inf")

    def call(self, now: float) -> str:
        if not self._read.has(1, now):
            return TOO_MANY_READ
        return "" if self._calls.take(1, now) else TOO_MANY_CALLS

    def read(self, size: int) -> None:
        self._read.spend(size)

    def write(self, count: int, size: int, now: float) -> str:
        if not count:
            return ""
        if not self._writes.has(count, now):
            return TOO_MANY_WRITES
        if not self._written.take(size, now):
            return TOO_MANY_BYTES
        self._writes.spend(count)
        self._written_since_count += size
        return ""

    def must_count(self) -> bool:
        """Whether the stored bytes have to be counted before the next put."""
        too_much = self._stored > self._limits.stored_bytes
        return too_much or 4 * self._written_since_count >= self._limits.stored_bytes

    def counted(self, stored: int) -> None:
        self._stored, self._written_since_count = stored, 0.0

    def put(self) -> str:
        return TOO_MUCH_STORED if self._stored > self._limits.stored_bytes else ""

    def grant(self, ttl: int, now: float) -> str:
        if ttl > self._limits.lease_seconds:
            return TTL_TOO_LONG
        if len(self._leases) >= self._limits.leases:
            self._leases = {lease: until for lease, until in self._leases.items() if until > now}
        if len(self._leases) >= self._limits.leases or not self._grants.take(1, now):
            return TOO_MANY_LEASES
        return ""

    def lease_lives(self, lease: int, ttl: int, now: float) -> None:
        """Note that etcd has granted or prolonged the lease; a ``ttl`` of 0 or less means that it has ended."""
        if ttl > 0:
            self._leases[lease] = now + ttl
        else:
            self._leases.pop(lease, None)

    def open_stream(self) -> str:
        if self._streams >= self._limits.streams:
            return TOO_MANY_STREAMS
        self._streams += 1
        return ""

    def close_stream(self) -> None:
        self._streams -= 1


@dataclass
class SignIns:
    """Sign-ins from one address, of one account or of all."""

    all: Bucket
    failed: Bucket

    def refusal(self, now: float) -> str:
        allowed = self.failed.has(1, now) and self.all.take(1, now)
        return "" if allowed else TOO_MANY_SIGN_INS

    def fail(self) -> None:
        self.failed.spend(1)


class Tables:
    """Usage of all accounts."""

    def __init__(self, limits: Limits) -> None:
        self.limits = limits
        self._usage = Recent(lambda now: Usage(limits, now))
        self._of_account = Recent(_sign_ins(limits.sign_ins, limits.failed_sign_ins))
        self._of_host = Recent(_sign_ins(limits.sign_ins_of_host, limits.failed_sign_ins_of_host))

    def usage(self, account: str, now: float) -> Usage:
        return self._usage.get(account, now)

    def sign_in(self, account: str, host: str, now: float) -> str:
        """Count a sign-in, or return why it is refused."""
        both = self._of_host.get(host, now), self._of_account.get(f"{account}@{host}", now)
        return next((why for why in (one.refusal(now) for one in both) if why), "")

    def sign_in_failed(self, account: str, host: str, now: float) -> None:
        self._of_host.get(host, now).fail()
        self._of_account.get(f"{account}@{host}", now).fail()


def _sign_ins(every: Rate, failed: Rate) -> Callable[[float], SignIns]:
    return lambda now: SignIns(Bucket(every, now), Bucket(failed, now))
