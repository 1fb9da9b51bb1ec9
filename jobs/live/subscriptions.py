"""Subscriptions of a socket: the fields of each request, its authorisation, and the frames that follow.

A ``Subscription`` is made from a request (``Ask``) without reading the database. ``admit`` authorises it for a user,
repeatedly while the socket is open. ``frames`` runs until the stream has ended, or for ever.
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Mapping
from typing import Any, ClassVar
from uuid import UUID

from jobs.models.streams import StreamKind
from jobs.selectors import jobs as job_selectors
from jobs.streams import store
from jobs.streams.frames import Frame, encode
from jobs.streams.tailer import Missing, in_thread, tailer
from portal.common.errors import ValidationFailed
from portal.common.messages import localized_job
from rbac.access import namespace_for
from rbac.models import User
from rbac.scopes import Scope

TAIL_ENTRIES = 500
JOBS_LISTED = 100

_ID_LIMIT = 100
_REPLICA = re.compile(r"[a-z]{1,16}-[0-9]{1,6}")

Ask = Mapping[str, Any]


class BeyondHead(ValidationFailed):
    """A cursor beyond the head of the stream: it belongs to another job, or to another portal's data."""

    code = "cursor_beyond_head"


class Subscription(ABC):
    """A subscription of a socket. ``key`` identifies it within the socket; ``mark`` is the id that its reader chose."""

    stream: ClassVar[str]

    def __init__(self, ask: Ask) -> None:
        self.mark = _mark(ask)
        self.key = self.mark or f"{ask['stream']}:{ask.get('job') or ask.get('namespace')}"

    @property
    @abstractmethod
    def topic(self) -> str:
        """Return the doorbell's topic."""

    @abstractmethod
    def admit(self, user: User) -> None:
        """Authorise the subscription for a user. Raises NotFound or Forbidden. Reads the database."""

    async def start(self) -> None:  # noqa: B027  most have nothing to check
        """Check the request before the first frame. Raises RegattaError."""

    @abstractmethod
    def frames(self) -> AsyncIterator[str]:
        """Yield the encoded frames."""


class _OfJob(Subscription):
    def __init__(self, ask: Ask) -> None:
        super().__init__(ask)
        self.job = _job(ask)

    @property
    def topic(self) -> str:
        return f"{self.stream}:{self.job}"

    def admit(self, user: User) -> None:
        job_selectors.job_for(user, self.job, Scope.JOB_READ)


class _Entries(_OfJob):
    """Lines or points after a cursor."""

    def __init__(self, ask: Ask) -> None:
        super().__init__(ask)
        self._kind = StreamKind(self.stream)
        self._after = _after(ask)
        self._replica = _replica(ask)

    async def start(self) -> None:
        head = await in_thread(store.head, self.job, self._kind)
        if self._after < 0:
            self._after = max(0, head.last - TAIL_ENTRIES)
        if self._after > head.last:
            raise BeyondHead(
                {"after": [f"The stream has {head.last} entries and none numbered {self._after}. Start again from 0."]}
            )

    async def frames(self) -> AsyncIterator[str]:
        async with tailer().stream(self.job, self._kind) as reader:
            async for item in reader.follow(self._after, self._replica):
                yield item.text if isinstance(item, Frame) else self._gap(item)
            state = await in_thread(job_selectors.job_state, self.job)
            yield encode({"t": "end", "job": self.job, "stream": self.stream, "hi": reader.hi, "state": state})

    def _gap(self, missing: Missing) -> str:
        # All stored entries are read from the store, of any age; missing entries were removed for good.
        return encode(
            {
                "t": "gap",
                "job": self.job,
                "stream": self.stream,
                "from": missing.first,
                "to": missing.last,
                "archived": False,
            }
        )


class Logs(_Entries):
    stream = "logs"


class Metrics(_Entries):
    stream = "metrics"


class Status(_OfJob):
    """The whole job, sent at each change."""

    stream = "status"

    async def frames(self) -> AsyncIterator[str]:
        async with tailer().state(self.topic, self._read) as watcher:
            async for state in watcher.follow():
                yield encode({"t": "status", "job": self.job, "job_state": localized_job(state) if state else state})

    def _read(self) -> tuple[Any, Any]:
        document = job_selectors.job_document(self.job) or {}
        return encode(document), document


class NamespaceJobs(Subscription):
    """The newest jobs of a namespace, then each of them that changes."""

    stream = "jobs"

    def __init__(self, ask: Ask) -> None:
        super().__init__(ask)
        self._namespace = _namespace(ask)

    @property
    def topic(self) -> str:
        return f"status:ns:{self._namespace}"

    def admit(self, user: User) -> None:
        namespace_for(user, self._namespace, Scope.JOB_READ)

    async def frames(self) -> AsyncIterator[str]:
        known: dict[str, Any] = {}
        async with tailer().state(self.topic, self._read) as watcher:
            async for jobs in watcher.follow():
                changed = [job for job in jobs if known.get(job["id"]) != job]
                known = {job["id"]: job for job in jobs}
                if changed:
                    localized = [localized_job(job) for job in changed]
                    yield encode({"t": "jobs", "namespace": self._namespace, "jobs": localized})

    def _read(self) -> tuple[Any, Any]:
        documents = job_selectors.namespace_documents(self._namespace, JOBS_LISTED)
        return encode({"jobs": documents}), documents


STREAMS: Mapping[str, type[Subscription]] = {kind.stream: kind for kind in (Logs, Metrics, Status, NamespaceJobs)}


def subscription(ask: Ask) -> Subscription:
    """Return the requested subscription. Raises ValidationFailed with a message for each invalid field."""
    stream = ask.get("stream")
    kind = STREAMS.get(stream) if isinstance(stream, str) else None
    if kind is None:
        raise ValidationFailed({"stream": [f"Must be one of {', '.join(STREAMS)}."]})
    return kind(ask)


def key_of(ask: Ask) -> str:
    """Return the key of the subscription that a request ends. Raises ValidationFailed."""
    return _mark(ask) or subscription(ask).key


# --- Fields of a request ---------------------------------------------------------------------------------------------
def _mark(ask: Ask) -> str:
    mark = ask.get("id", "")
    if not isinstance(mark, str) or len(mark) > _ID_LIMIT:
        raise ValidationFailed({"id": [f"Must be a text of at most {_ID_LIMIT} characters."]})
    return mark


def _job(ask: Ask) -> str:
    try:
        return str(UUID(str(ask.get("job"))))
    except ValueError:
        raise ValidationFailed({"job": ["Must be the id of a job."]}) from None


def _namespace(ask: Ask) -> str:
    name = ask.get("namespace")
    if not isinstance(name, str) or not name:
        raise ValidationFailed({"namespace": ["Must be the name of a namespace."]})
    return name


def _after(ask: Ask) -> int:
    after = ask.get("after", 0)
    if type(after) is not int or not -1 <= after < 2**63:
        raise ValidationFailed(
            {"after": ["Must be the number of the last entry that you have, 0, or -1 for the tail."]}
        )
    return after


def _replica(ask: Ask) -> str | None:
    replica = ask.get("replica")
    if replica in (None, "", "*"):
        return None
    if not isinstance(replica, str) or not _REPLICA.fullmatch(replica):
        raise ValidationFailed({"replica": ["Must be <role>-<index>, such as trainer-0."]})
    return replica
