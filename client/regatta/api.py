"""The client of a portal: its resources as attributes."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import httpx

from regatta import config
from regatta.http import Http
from regatta.resources.account import Namespaces, Tokens
from regatta.resources.datasets import Datasets
from regatta.resources.jobs import Examples, Jobs


class Client:
    """Authenticated client of one portal. May be used by several threads at once.

    Without ``server`` and ``token`` it uses the environment or the user's file, as written by `regatta login`
    (``regatta.config``).

    ``clock`` returns monotonic seconds and ``sleep`` waits; tests replace both.
    """

    def __init__(
        self,
        server: str = "",
        token: str = "",
        *,
        namespace: str = "",
        transport: httpx.BaseTransport | None = None,
        sleep: Callable[[float], None] = time.sleep,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        if not server:
            kept = config.in_use()
            server, token, namespace = kept.server, token or kept.token, namespace or kept.namespace
        self.server = server.rstrip("/")
        self._http = Http(server, token, transport=transport, sleep=sleep)
        self.tokens = Tokens(self._http)
        self.namespaces = Namespaces(self._http, namespace)
        self.examples = Examples(self._http)
        self.jobs = Jobs(self._http, self.namespaces, sleep, clock)
        self.datasets = Datasets(self._http, sleep)

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *exc: object) -> None:
        self._http.close()

    def me(self) -> dict[str, Any]:
        """Return ``{"username", "is_admin", "namespaces": [{"name", "role"}]}``."""
        return dict(self._http.get("/api/v1/me"))
