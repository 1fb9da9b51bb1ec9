"""The request, user, job and attempt that the current code works for. Log lines name them.

One context belongs to one request, task or pass over a job. Threads that work for a request share its context, so that
a view can add facts that the access line names afterwards.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from portal.common.tracing.request_spans import RequestTrace


@dataclass(slots=True)
class LogContext:
    """Facts of the current work; an empty text and None are unknown.

    ``refusal`` is the code of a problem, ``template`` the path of the route with its parameters, and ``trace`` the span
    of the request. ``trace_id`` names a recorded trace: of the job, else of the request.
    """

    request_id: str = ""
    method: str = ""
    route: str = ""
    user: int | None = None
    job: str = ""
    attempt: int | None = None
    task: str = ""
    refusal: str = ""
    template: str = ""
    trace_id: str = ""
    trace: RequestTrace | None = None

    def fields(self) -> dict[str, Any]:
        """Return the known facts for a log line."""
        found = ((name, getattr(self, name)) for name in _LOGGED)
        return {name: value for name, value in found if value not in ("", None)}


_LOGGED = ("request_id", "method", "route", "user", "job", "attempt", "task", "trace_id")
_NOTHING = LogContext()
_current: ContextVar[LogContext] = ContextVar("log_context", default=_NOTHING)


def current() -> LogContext:
    """Return the current context; an empty one outside any."""
    return _current.get()


def note(**facts: Any) -> None:
    """Set facts of the current context. Outside any context do nothing."""
    context = _current.get()
    if context is not _NOTHING:
        for name, value in facts.items():
            setattr(context, name, value)


@contextmanager
def use(**facts: Any) -> Iterator[LogContext]:
    """Run the block in a copy of the current context with further facts."""
    context = replace(_current.get(), **facts)
    token = _current.set(context)
    try:
        yield context
    finally:
        _current.reset(token)
