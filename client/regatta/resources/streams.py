"""Streams of a job: its log and its metrics."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import datetime
from functools import partial
from typing import TypeVar

from regatta.http import Http
from regatta.models import Line, Page, Point, PointPage
from regatta.paths import segment
from regatta.series import Chart, Series

POLL_SECONDS = 0.5
PAGE = 1000

AnyPage = TypeVar("AnyPage", Page, PointPage)


class Follower:
    """Reads a stream until the job has ended and all of it is read. ``sleep`` waits between two polls.

    Every item is yielded once, because the next read begins at the cursor of the last page.
    """

    def __init__(self, has_ended: Callable[[str], bool], sleep: Callable[[float], None]) -> None:
        self._has_ended = has_ended
        self._sleep = sleep

    def pages(
        self, job_id: str, read: Callable[[int], Iterator[AnyPage]], after: int, enough: Callable[[], bool]
    ) -> Iterator[AnyPage]:
        """Yield the pages of a stream as they arrive."""
        while not enough():
            # Read before the pages: the data of an ended job is complete when its state says so.
            ended = self._has_ended(job_id)
            for page in read(after):
                after = max(after, page.last)
                yield page
            if ended:
                return
            self._sleep(POLL_SECONDS)


class Logs:
    """Logs of jobs. The number of a line is its cursor."""

    def __init__(self, http: Http, follower: Follower) -> None:
        self._http = http
        self._follower = follower

    def read(
        self, job_id: str, after: int = 0, *, replica: str | None = None, since: datetime | None = None
    ) -> Iterator[Line]:
        """Yield the lines that exist now."""
        for page in self.pages(job_id, after, replica=replica, since=since):
            yield from page.lines

    def follow(
        self,
        job_id: str,
        after: int = 0,
        *,
        replica: str | None = None,
        since: datetime | None = None,
        enough: Callable[[], bool] = lambda: False,
    ) -> Iterator[Line]:
        """Yield the lines as they arrive, until the job has ended and all are read, or ``enough()`` is true.

        Because of the cursor, every line is yielded once, whatever happens to the connection. Permanent errors are
        raised.
        """
        read = partial(self.pages, job_id, replica=replica, since=since)
        for page in self._follower.pages(job_id, read, after, enough):
            yield from page.lines

    def tail(self, job_id: str, count: int, *, replica: str | None = None) -> list[Line]:
        """Return the last ``count`` lines that exist now."""
        found: list[Line] = []
        before: int | None = None
        while len(found) < count:
            path = f"/api/v1/jobs/{segment(job_id)}/logs"
            limit = min(PAGE, count - len(found))
            body = self._http.get(path, after=-1, before=before, limit=limit, replica=replica)
            found = [*Page.from_json(body).lines, *found]
            before = int(body["first"])
            if not body["more"] or before <= 1:
                break
        return found

    def last_line(self, job_id: str) -> int:
        """Return the cursor after all lines that exist now."""
        return self.page(job_id, -1, limit=1).last

    def page(
        self,
        job_id: str,
        after: int = 0,
        *,
        replica: str | None = None,
        since: datetime | None = None,
        limit: int = PAGE,
    ) -> Page:
        """Return lines strictly after the cursor; -1 means the last ones."""
        path = f"/api/v1/jobs/{segment(job_id)}/logs"
        moment = since.isoformat() if since else None
        return Page.from_json(self._http.get(path, after=after, limit=limit, replica=replica, since=moment))

    def pages(
        self, job_id: str, after: int = 0, *, replica: str | None = None, since: datetime | None = None
    ) -> Iterator[Page]:
        """Yield the pages that exist now, at least one."""
        while True:
            page = self.page(job_id, after, replica=replica, since=since)
            yield page
            if not page.more or page.last <= after:
                return
            after = page.last


class Metrics:
    """Metrics of jobs, as reported or reduced to a number of buckets."""

    def __init__(self, http: Http, follower: Follower) -> None:
        self._http = http
        self._follower = follower

    def series(self, job_id: str, keys: str | None = None, *, buckets: int = 1000) -> dict[str, Series]:
        """Return the metrics by name, reduced to at most ``buckets`` each."""
        return self.chart(job_id, keys, buckets=buckets).series

    def chart(self, job_id: str, keys: str | None = None, *, buckets: int = 1000) -> Chart:
        """Return the metrics, and the names of those that the answer omits: request them with ``keys``."""
        body = self._http.get(f"/api/v1/jobs/{segment(job_id)}/metrics", keys=keys, buckets=buckets)
        return Chart.from_json(body)

    def points(self, job_id: str, after: int = 0, *, keys: str | None = None) -> Iterator[Point]:
        """Yield every value that exists now, as reported. ``keys``: names of metrics, separated by commas."""
        for page in self.pages(job_id, after, keys=keys):
            yield from page.points

    def follow(
        self,
        job_id: str,
        after: int = 0,
        *,
        keys: str | None = None,
        enough: Callable[[], bool] = lambda: False,
    ) -> Iterator[Point]:
        """Yield the values as they are reported, each once, until the job has ended or ``enough()`` is true."""
        for page in self._follower.pages(job_id, partial(self.pages, job_id, keys=keys), after, enough):
            yield from page.points

    def pages(self, job_id: str, after: int = 0, *, keys: str | None = None) -> Iterator[PointPage]:
        """Yield the pages of points that exist now, at least one."""
        while True:
            body = self._http.get(f"/api/v1/jobs/{segment(job_id)}/metrics/points", after=after, limit=PAGE, keys=keys)
            page = PointPage.from_json(body)
            yield page
            if not page.more or page.last <= after:
                return
            after = page.last
