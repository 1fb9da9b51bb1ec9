"""Reflector: synchronises the cache with the API server by a list and a watch from its version on.

* A list is read in pages. A watch requests bookmarks, so that it can be resumed after an hour without events.
* 410, as a response or an event: the version has expired, and the objects are listed again.
* 429: no request is sent before the time in Retry-After. All other errors: back-off with jitter, then the watch is
  resumed at its version. An empty watch that ends at once counts as a failure, as in client-go: otherwise a proxy that
  ends watches would get requests in a loop.
* Every ten minutes all objects are listed again, in case an event was lost.
"""

from __future__ import annotations

import logging
import random
from collections.abc import Callable, Iterator
from typing import Any

from jobs.operator.client.api import GONE, KubeApi, Refusal
from jobs.operator.client.cache import Cache
from jobs.operator.client.metrics import Metrics
from jobs.operator.client.resources import Resource
from jobs.operator.client.workqueue import Backoff

log = logging.getLogger(__name__)

_PAGE = 500
_WATCH_SECONDS = (240.0, 300.0)
_RELIST_SECONDS = 600.0
_CUT_OFF = 3
_AT_ONCE = 1.0  # seconds


class Reflector:
    """Reflector of one kind of object, in one namespace or all. ``clock`` is monotonic, in seconds."""

    def __init__(
        self,
        api: KubeApi,
        resource: Resource,
        cache: Cache,
        metrics: Metrics,
        clock: Callable[[], float],
        *,
        namespace: str = "",
        chance: Callable[[], float] = random.random,
    ) -> None:
        self.resource = resource
        self.synced = False
        self.last_contact = clock()  # time of the last response or event
        self.refusal: Refusal | None = None  # the last refusal, until a request succeeds
        self._api, self._cache, self._metrics, self._clock, self._chance = api, cache, metrics, clock, chance
        self._path = resource.path(namespace)
        self._version = ""
        self._listed = 0.0
        self._failures = 0
        self._empty_watches = 0  # consecutive watches that ended at once without an event
        self._backoff = Backoff()

    def round(self) -> float:
        """List if that is due, and watch until the server ends the watch; return the seconds until the next round."""
        try:
            if not self._version or self._clock() - self._listed >= _RELIST_SECONDS:
                self.relist()
            self._watch()
        except Refusal as refusal:
            self.refusal = refusal
            return self._after(refusal)
        except Exception as error:
            # If the thread ended here, the cache would become stale without notice.
            log.exception("Watching %s failed; they are listed again.", self.resource.plural)
            self._version = ""
            self.refusal = Refusal(0, "UnexpectedError", repr(error))
            return self._after(self.refusal)
        self._failures, self.refusal = 0, None
        return self._backoff.pause(self._empty_watches, self._chance())

    @property
    def is_cut_off(self) -> bool:
        """Whether requests have failed several times in a row."""
        return self._failures >= _CUT_OFF

    def is_stale(self, now: float) -> bool:
        """Whether the last response or event is older than two watches can last."""
        return now - self.last_contact > 2 * _WATCH_SECONDS[1]

    def relist(self) -> None:
        """List all objects and replace them in the cache. Raises Refusal."""
        items: list[dict[str, Any]] = []
        version = ""
        for page in self._pages():
            # Trimmed page by page: whole objects are ten times as big.
            items += [self._cache.trim(self.resource.kind, item) for item in page.get("items") or ()]
            version = str(page["metadata"].get("resourceVersion", ""))
        self._cache.replace(self.resource.kind, items, version)
        self._version, self._listed, self.last_contact, self.synced = version, self._clock(), self._clock(), True
        self.refusal = None
        self._metrics.lists.labels(self.resource.kind).inc()

    def _pages(self) -> Iterator[dict[str, Any]]:
        query = {"limit": str(_PAGE), **self._selector()}
        while True:
            page = self._api.call("GET", self._path, query=query)
            yield page
            rest = page["metadata"].get("continue")
            if not rest:
                return
            query["continue"] = rest

    def _watch(self) -> None:
        shortest, longest = _WATCH_SECONDS
        seconds = shortest + (longest - shortest) * self._chance()
        query = {"resourceVersion": self._version, "allowWatchBookmarks": "true", **self._selector()}
        begun, empty = self._clock(), True
        for event in self._api.watch(self._path, query, seconds):
            self.last_contact = self._clock()
            empty = False
            self._take(str(event["type"]), event["object"])
            self._failures, self._empty_watches, self.refusal = 0, 0, None
            if self.last_contact - self._listed >= _RELIST_SECONDS:
                return
        self.last_contact = self._clock()  # ended normally
        self._empty_watches = self._empty_watches + 1 if empty and self.last_contact - begun < _AT_ONCE else 0

    def _take(self, kind: str, item: dict[str, Any]) -> None:
        if kind == "ERROR":
            raise Refusal(int(item.get("code", 500)), str(item.get("reason", "")), str(item.get("message", "")))
        if kind == "DELETED":
            self._cache.remove(self.resource.kind, item)
        elif kind != "BOOKMARK":
            self._cache.put(self.resource.kind, item)
        self._version = str(item["metadata"]["resourceVersion"])

    def _selector(self) -> dict[str, str]:
        return {"labelSelector": self.resource.selector} if self.resource.selector else {}

    def _after(self, refusal: Refusal) -> float:
        self._failures += 1
        self._metrics.watch_failures.labels(self.resource.kind, refusal.reason or str(refusal.status)).inc()
        if refusal.status == GONE:
            self._version = ""
            # At once the first time, then with back-off: a server may compact faster than it can be listed.
            return self._backoff.pause(self._failures - 1, self._chance())
        return max(refusal.retry_after or 0.0, self._backoff.pause(self._failures, self._chance()))
