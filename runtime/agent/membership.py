"""Registration of the replica among the live processes of its attempt, and the list of these processes."""

from __future__ import annotations

import contextlib
import json
import sys
import threading
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from runtime import contract
from runtime.agent.settings import Settings
from runtime.contract import Member
from runtime.messages import training as messages

if TYPE_CHECKING:
    from runtime.coordination.base import (
        Change,
        CoordinationError,
        CoordinationStore,
        Lease,
        Relisted,
        Versioned,
        Watch,
    )

RETRY_SECONDS = 0.5
# How much longer than its lease the registration of an earlier start may appear to be alive.
STALE_SECONDS = 5.0


class _NotExpired(Exception):
    """The registration of the replica's earlier start has not expired yet."""


class Membership:
    """Registers the replica on request and reports every change of the members.

    It waits for the store on threads of its own.
    """

    def __init__(
        self,
        settings: Settings,
        on_members: Callable[[int, Sequence[Member]], None],
        on_registered: Callable[[int], None],
        on_lost: Callable[[str], None],
    ) -> None:
        """Prepare the registration.

        ``on_lost`` is called before another process can own the registration, and when the store refuses this one.
        """
        self._settings = settings
        self._on_members = on_members
        self._on_registered = on_registered
        self._on_lost = on_lost
        self._key = contract.member_key(settings.job_id, settings.attempt, settings.role, settings.index)
        self._connecting = threading.Lock()
        self._store: CoordinationStore | None = None
        self._watch: Watch | None = None
        self._lease: Lease | None = None
        self._left = threading.Event()
        self._complained: set[str] = set()
        self._registered_at: int | None = None  # the store's revision
        self._expiry_deadline: float | None = None  # set when an earlier start's registration is seen

    def start(self) -> None:
        """Start watching."""
        threading.Thread(target=self._follow, name="members", daemon=True).start()

    def register(self, address: str, release: str = "") -> None:
        """Claim the replica's key.

        Retries until it succeeds, the key belongs to another process, or ``leave`` is called.
        """
        member = {"role": self._settings.role, "index": self._settings.index, "address": address, "release": release}
        threading.Thread(target=self._claim, args=(member,), name="registration", daemon=True).start()

    def leave(self) -> None:
        """Remove the registration at once, so that no process waits for the lease to expire."""
        self._left.set()
        if self._watch:
            self._watch.close()
        if self._lease:
            from runtime.coordination.base import CoordinationError

            # The lease ends by itself if the store cannot be reached.
            with contextlib.suppress(CoordinationError):
                self._lease.revoke()

    # --- Registration ------------------------------------------------------------------------------------------------
    def _claim(self, member: Mapping[str, Any]) -> None:
        from runtime.coordination.base import CoordinationError, LeaseLost, StoreUnavailable

        while not self._left.is_set():
            try:
                self._put(member)
                return
            except (StoreUnavailable, _NotExpired):
                self._left.wait(RETRY_SECONDS)
            except LeaseLost:
                self._lease = None  # it expired before it held a key
            except CoordinationError as refusal:
                self._refused(refusal)
                return
            except Exception as error:  # noqa: BLE001  descriptors, threads or memory may be short
                self._try_again("register", error)

    def _put(self, member: Mapping[str, Any]) -> None:
        from runtime.coordination.base import Conflict

        settings = self._settings
        store = self._connected()
        if self._lease is None or not self._lease.alive:
            self._lease = store.grant(settings.lease, self._lost, settings.outage)
        answer = store.put(self._key, json.dumps(member).encode(), if_revision=0, lease=self._lease)
        # After a lost answer the existing entry may be our own.
        registration = answer.current if isinstance(answer, Conflict) else answer
        if registration is None or registration.lease != self._lease.id:
            if settings.start_number > 1 and self._may_expire():
                raise _NotExpired
            self._on_lost(f"another process is registered as {settings.replica}")
        elif self._left.is_set():
            self._lease.revoke()
        else:
            self._registered_at = registration.mod_revision
            self._on_registered(registration.create_revision)
            if not self._lease.alive:
                self._on_lost(messages.LEASE_EXPIRED_AT_REGISTRATION())

    def _may_expire(self) -> bool:
        """Return whether the existing entry may be the registration of the earlier start, which has yet to expire."""
        now = time.monotonic()
        if self._expiry_deadline is None:
            self._expiry_deadline = now + self._settings.lease + STALE_SECONDS
        return now < self._expiry_deadline

    def _lost(self, why: str) -> None:
        """Report the loss, unless the replica is not registered and has nothing to lose."""
        if self._registered_at is not None:
            self._on_lost(why)

    def _refused(self, refusal: CoordinationError) -> None:
        """Report a permanent refusal: the password is wrong, or the attempt is over and its account removed."""
        if not self._left.is_set():
            self._on_lost(str(refusal))

    # --- Watching ----------------------------------------------------------------------------------------------------
    def _follow(self) -> None:
        from runtime.coordination.base import CoordinationError, StoreUnavailable

        while not self._left.is_set():
            try:
                self._follow_once()
            except StoreUnavailable:
                self._left.wait(RETRY_SECONDS)
            except CoordinationError as refusal:
                self._refused(refusal)
                return
            except Exception as error:  # noqa: BLE001  otherwise the process would wait for members that are gone
                self._try_again("follow the members", error)

    def _try_again(self, what: str, error: Exception) -> None:
        if what not in self._complained:
            self._complained.add(what)
            sys.stderr.write(f"This replica could not {what} and tries again: {error!r}\n")
        self._left.wait(RETRY_SECONDS)

    def _follow_once(self) -> None:
        """List the members, then report every change until the store fails or ``leave`` is called."""
        prefix = contract.attempt_prefix(self._settings.job_id, self._settings.attempt) + "members/"
        store = self._connected()
        listing = store.list(prefix)
        known = {entry.key: entry for entry in listing.entries}
        self._report_members(listing.revision, known.values())
        self._watch = store.watch(prefix, listing.revision)
        if self._left.is_set():
            self._watch.close()
        for happening in self._watch:
            _apply(happening, known)
            self._report_members(happening.revision, known.values())

    def _report_members(self, revision: int, entries: Collection[Versioned]) -> None:
        there = (entry for entry in entries if entry.key != self._key or self._holds(entry))
        self._on_members(revision, [_member(entry) for entry in sorted(there, key=lambda entry: entry.key)])

        if self._is_removed(revision, entries):
            self._on_lost(messages.REGISTRATION_REMOVED())

    def _is_removed(self, revision: int, entries: Collection[Versioned]) -> bool:
        """Return whether the registration was removed.

        After an outage it is not enough that the store still has the lease: the key must be unchanged.
        """
        if self._registered_at is None or revision < self._registered_at or self._left.is_set():
            return False
        return not any(entry.key == self._key and self._holds(entry) for entry in entries)

    def _holds(self, entry: Versioned) -> bool:
        """Return whether this start of the replica owns the registration.

        The process would take the registration of an earlier start, which has yet to expire, for its own. It would then
        use the incarnation of a process that is gone.
        """
        return self._lease is not None and entry.lease == self._lease.id

    def _connected(self) -> CoordinationStore:
        # Imported late: the agent's process should start before the store's client is loaded.
        from runtime import coordination

        with self._connecting:
            if self._store is None:
                self._store = coordination.connect(self._settings.coordination)
            return self._store


def _apply(happening: Change | Relisted, known: dict[str, Versioned]) -> None:
    from runtime.coordination.base import Relisted

    if isinstance(happening, Relisted):
        known.clear()
        known.update((entry.key, entry) for entry in happening.entries)
    elif happening.entry is None:
        known.pop(happening.key, None)
    else:
        known[happening.key] = happening.entry


def _member(entry: Versioned) -> Member:
    return Member.from_json({**json.loads(entry.value), "incarnation": entry.create_revision})
