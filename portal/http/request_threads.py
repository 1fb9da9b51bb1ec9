"""Threads for the synchronous work of requests: Django's views and middleware, and their queries.

``asgiref`` starts a thread for each request and passes every synchronous part of it there and back. Django's handler
takes six such turns for a request. Each costs about as much as a query, and SQLite is opened again in each thread. Here
the threads are kept, with their connections to SQLite, and a request takes one turn.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from typing import ParamSpec, TypeVar

from django.conf import settings
from django.db import connections

_Parameters = ParamSpec("_Parameters")
_Result = TypeVar("_Result")

# A thread is started when all others are busy. Each connection has one request at a time, so no request waits for a
# thread, although a slow upload occupies one for minutes.
_threads = ThreadPoolExecutor(settings.CONNECTIONS, thread_name_prefix="request")
# So many threads keep their connections to SQLite: each is two open files and up to 2 MiB of pages. Those that only a
# burst of requests has started close them.
KEEPING = 32
_keeping: set[int] = set()


async def in_thread(
    work: Callable[_Parameters, _Result], *args: _Parameters.args, **kwargs: _Parameters.kwargs
) -> _Result:
    """Call ``work`` in one of the threads and return its result.

    It sees the context variables of the caller; those that it sets are its own. It must leave no connection to
    PostgreSQL behind. Cancelling the wait does not end it.
    """
    context = copy_context()
    loop = asyncio.get_running_loop()
    return await loop.run_in_executor(_threads, lambda: _then_close(lambda: context.run(work, *args, **kwargs)))


def _then_close(work: Callable[[], _Result]) -> _Result:
    """Call ``work``. Close the connections of this thread, unless it is one of the first ``KEEPING``."""
    try:
        return work()
    finally:
        if len(_keeping) < KEEPING:
            _keeping.add(threading.get_ident())
        if threading.get_ident() not in _keeping:
            connections.close_all()
