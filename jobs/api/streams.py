"""Views of the HTTP API of streams: charts, raw points, pages of lines and the whole log."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from datetime import UTC, datetime
from typing import Any, TypeVar
from uuid import UUID

from django.http import StreamingHttpResponse
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import OpenApiParameter, OpenApiResponse, extend_schema
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from jobs.models import Job
from jobs.models.streams import StreamKind
from jobs.selectors import jobs as job_selectors
from jobs.streams import rollups, store
from jobs.streams.entries import LogLine, Point
from jobs.streams.store import Head
from jobs.streams.tailer import in_thread
from portal.common.tables import csv_line
from rbac.scopes import Scope

PAGE_LINES = 500
MOST_LINES = 5000
MOST_BUCKETS = 5000
# Buckets of all metrics of one chart: 200 metrics of the usual 1,000.
MOST_IN_ALL = 200_000
PAGE_POINTS = 1000
MOST_POINTS = 10_000


# --- Queries ---------------------------------------------------------------------------------------------------------
class ChartQuery(serializers.Serializer[Any]):
    """The query of a chart."""

    keys = serializers.CharField(required=False, help_text="Names of metrics, separated by commas. Without it: all.")
    x = serializers.ChoiceField(choices=list(rollups.AXES), default="step")
    to = serializers.FloatField(required=False)
    buckets = serializers.IntegerField(min_value=1, max_value=MOST_BUCKETS, default=1000)
    attempt = serializers.IntegerField(min_value=1, required=False)
    replica = serializers.CharField(max_length=63, required=False)

    def get_fields(self) -> dict[str, Any]:
        # "from" is a keyword and cannot be an attribute.
        return super().get_fields() | {"from": serializers.FloatField(required=False)}


class PointQuery(serializers.Serializer[Any]):
    """The query of a page of points."""

    after = serializers.IntegerField(min_value=0, default=0, help_text="Points after this number.")
    limit = serializers.IntegerField(min_value=1, max_value=MOST_POINTS, default=PAGE_POINTS)
    keys = serializers.CharField(required=False, help_text="Names of metrics, separated by commas. Without it: all.")


class LogQuery(serializers.Serializer[Any]):
    """The query of a page of lines."""

    after = serializers.IntegerField(min_value=-1, default=0, help_text="Lines after this number; -1: the last ones.")
    before = serializers.IntegerField(min_value=1, required=False, help_text="The last lines before this number.")
    limit = serializers.IntegerField(min_value=1, max_value=MOST_LINES, default=PAGE_LINES)
    replica = serializers.CharField(max_length=63, required=False)
    since = serializers.DateTimeField(required=False, help_text="Lines that were printed then or later (ISO 8601).")
    q = serializers.CharField(required=False, trim_whitespace=False, max_length=1000, help_text="Lines that hold this.")
    regex = serializers.CharField(
        required=False, trim_whitespace=False, max_length=1000, help_text="Lines that match this expression."
    )


def _checked(serializer: type[serializers.Serializer[Any]], request: Request) -> dict[str, Any]:
    query = serializer(data=request.query_params)
    query.is_valid(raise_exception=True)
    checked: dict[str, Any] = query.validated_data
    return checked


class _JobView(APIView):
    def _job(self, request: Request, job_id: UUID) -> Job:
        return job_selectors.job_for(request.user, job_id, Scope.JOB_READ)


# --- Charts ----------------------------------------------------------------------------------------------------------
class MetricsView(_JobView):
    """The metrics of a job, reduced to buckets of equal width."""

    @extend_schema(
        parameters=[ChartQuery],
        responses=OpenApiResponse(
            OpenApiTypes.OBJECT,
            description='`{"series": {"cost": {"x", "min", "max", "last", "count", "nan"}}, "next", "x", "width", '
            '"left_out"}`; '
            "the arrays of a series are equally long. Beyond 200,000 buckets the names of further metrics are in "
            "`left_out`: ask for them with `keys`. Subscribe to the socket after `next` for what comes later.",
        ),
    )
    def get(self, request: Request, job_id: UUID) -> Response:
        job = self._job(request, job_id)
        query = _checked(ChartQuery, request)
        keys = [key for key in query.get("keys", "").split(",") if key]
        chart = rollups.buckets(
            job.pk,
            keys or None,
            x=query["x"],
            from_=query.get("from"),
            to=query.get("to"),
            buckets=query["buckets"],
            attempt=query.get("attempt"),
            replica=query.get("replica"),
            most=MOST_IN_ALL // query["buckets"],
        )
        return Response(chart.to_json())


class PointsView(_JobView):
    """A page of points as they were reported, for programs that read them continuously."""

    @extend_schema(
        parameters=[PointQuery],
        responses=OpenApiResponse(
            OpenApiTypes.OBJECT,
            description='`{"points": [{"seq", "time", "attempt", "replica", "step", "key", "value"}], "last", '
            '"more"}`. '
            "`last` is the `after` of the next page, also where no point of it was asked for.",
        ),
    )
    def get(self, request: Request, job_id: UUID) -> Response:
        job = self._job(request, job_id)
        query = _checked(PointQuery, request)
        keys = {key for key in query.get("keys", "").split(",") if key}
        head = store.head(job.pk, StreamKind.METRICS)
        points = store.read_points(job.pk, after=query["after"], limit=query["limit"])
        # If no point is left up to the head, the points were removed, and the pages must end nevertheless.
        last = points[-1].seq if points else max(query["after"], head.last)
        return Response(
            {
                "points": [point.to_json() for point in points if not keys or point.key in keys],
                "last": last,
                "more": last < head.last,
            }
        )


class MetricsCsvView(_JobView):
    """Every point of a job, as a table."""

    @extend_schema(responses={(200, "text/csv"): OpenApiTypes.STR})
    def get(self, request: Request, job_id: UUID) -> StreamingHttpResponse:
        job = self._job(request, job_id)
        return _download(_csv_pieces(job), "text/csv; charset=utf-8", f"{job.name}-metrics.csv")


def _csv_pieces(job: Job) -> Iterator[str]:
    yield csv_line(Point._fields)
    after = 0
    while points := store.read_points(job.pk, after=after, limit=5000):
        yield "".join(csv_line([*point[:1], _stamp(point.time), *point[2:]]) for point in points)
        after = points[-1].seq


# --- Logs ------------------------------------------------------------------------------------------------------------
class LogsView(_JobView):
    """A page of log lines."""

    @extend_schema(
        parameters=[LogQuery],
        responses=OpenApiResponse(
            OpenApiTypes.OBJECT,
            description='`{"lines": [{"seq", "time", "replica", "stream", "text"}], "first", "last", "more"}`. '
            "`last` is the `after` of the next page, `first` the `before` of the one above. A search may stop early: "
            "it then says `more`.",
        ),
    )
    def get(self, request: Request, job_id: UUID) -> Response:
        job = self._job(request, job_id)
        query = _checked(LogQuery, request)
        page = store.read_logs(
            job.pk,
            **_place(query, store.head(job.pk, StreamKind.LOGS)),
            limit=query["limit"],
            replica=query.get("replica"),
            since=query["since"].timestamp() if "since" in query else None,
            text=query.get("q"),
            regex=query.get("regex"),
        )
        lines = [line.to_json() for line in page.lines]
        return Response({"lines": lines, "first": page.first, "last": page.last, "more": page.more})


def _place(query: dict[str, Any], head: Head) -> dict[str, int]:
    """Return the cursors of a page. The tail is the page before the next entry to be stored."""
    if query["after"] == -1:
        return {"before": query.get("before", head.last + 1)}
    return {name: query[name] for name in ("after", "before") if name in query}


class LogsDownloadView(_JobView):
    """The whole log of a job, all replicas, as text."""

    @extend_schema(parameters=[OpenApiParameter("replica", str)], responses={(200, "text/plain"): OpenApiTypes.STR})
    def get(self, request: Request, job_id: UUID) -> StreamingHttpResponse:
        job = self._job(request, job_id)
        pieces = _log_pieces(job, request.query_params.get("replica"))
        return _download(pieces, "text/plain; charset=utf-8", f"{job.name}.log")


def _log_pieces(job: Job, replica: str | None) -> Iterator[str]:
    for lines in store.read_log_blocks(job.pk):
        yield "".join(_log_text(line) for line in lines if replica in (None, "", line.replica))


def _log_text(line: LogLine) -> str:
    return f"{_stamp(line.time)} {line.replica} {line.stream} {line.text}\n"


def _stamp(moment: float) -> str:
    """Format unix time as ISO 8601, or as a bare number if it is out of the range of dates."""
    try:
        return datetime.fromtimestamp(moment, UTC).isoformat(timespec="milliseconds")
    except (OverflowError, ValueError, OSError):
        return str(moment)


# --- Downloads -------------------------------------------------------------------------------------------------------
def _download(pieces: Iterator[str], content_type: str, name: str) -> StreamingHttpResponse:
    """Send pieces as they are read. Asynchronous, because ASGI first collects a plain iterator in memory."""
    response = StreamingHttpResponse(from_thread(pieces), content_type=content_type)
    response.headers["Content-Disposition"] = f'attachment; filename="{name}"'
    return response


_Piece = TypeVar("_Piece")


async def from_thread(pieces: Iterator[_Piece]) -> AsyncIterator[_Piece]:
    """Yield the pieces, each of which a thread reads: it may come from the database or a disk."""
    while (piece := await in_thread(next, pieces, None)) is not None:
        yield piece
