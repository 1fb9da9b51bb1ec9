"""Views of the ingest API: output, metrics, reports, events, heartbeats and artifacts. ``runtime.contract`` defines
the requests.

Every view loads the attempt by its id and compares the digest of the agent's token. It refuses a request of an attempt
that was replaced, of a superseded start of a replica (``jobs.streams.fencing``), for a replica that the attempt does
not have, or long after the end. The last output often arrives after the job has ended, but not a day later.

If the database was restored, every answer to a POST names the state to which it last was (``contract.EPOCH``). If
this process is overloaded, the answer names the age at which agents should send batches (``contract.PACE``).
"""

from __future__ import annotations

import functools
import json
from collections.abc import AsyncIterator, Callable, Mapping
from datetime import timedelta
from functools import partial
from typing import Any, BinaryIO, cast
from uuid import UUID

from asgiref.sync import sync_to_async
from django.conf import settings
from django.http import HttpRequest, HttpResponse, HttpResponseBase, JsonResponse, StreamingHttpResponse
from django.views.decorators.csrf import csrf_exempt
from django.views.decorators.http import require_GET, require_POST

from jobs.ingest import bootstrap, payloads
from jobs.ingest.attempts import authentic
from jobs.messages import jobs as messages
from jobs.models import Attempt, Replica
from jobs.reconcile import job_spans
from jobs.services import replica_reports
from jobs.streams import fencing, store
from jobs.streams.entries import Gap
from portal.common import request_load
from portal.common.clock import now as wall_clock
from portal.common.errors import Conflict, NotFound, NotSignedIn, RegattaError, StaleAttempt, TooLarge
from portal.common.monitoring import log_context
from portal.common.monitoring import metrics as measured
from rbac import throttle
from rbac.audit import restorations
from runtime import contract

BODY_LIMIT = 1024 * 1024  # bytes of a JSON body
ARTIFACT_LIMIT = 2 * 1024**3  # bytes of one artifact
_PIECE = 1024 * 1024  # bytes of a file that are read at a time
# Requests of an attempt are accepted until this long after its end.
LATE = timedelta(days=1)
# Cache of (attempt, replica) found in the database: an attempt keeps all of its replicas.
_known_replicas: set[tuple[UUID, str]] = set()
_KNOWN_LIMIT = 10_000

Answer = dict[str, Any]
View = Callable[..., JsonResponse]
Handler = Callable[[HttpRequest, Attempt], Answer]
Reader = Callable[..., HttpResponseBase]
Giver = Callable[..., HttpResponseBase]


class Malformed(RegattaError):
    """The body is not a JSON object."""

    code = "malformed"
    status = 400


class LengthRequired(RegattaError):
    """The length of a file is unknown, so the storage quota cannot be checked."""

    code = "length_required"
    status = 411


class BatchGap(Conflict):
    """The batch begins beyond the stored entries. ``last`` is the last stored number, after which to continue."""

    code = "gap"


def _authentic(view: Handler) -> View:
    """Authenticate a POST and pass its attempt to the view. Raises NotFound, NotSignedIn, StaleAttempt."""

    @csrf_exempt
    @require_POST
    @functools.wraps(view)
    def authenticated(request: HttpRequest, attempt_id: UUID) -> JsonResponse:
        answer = view(request, _present_attempt(request, attempt_id))
        return JsonResponse({**answer, **_restored(), **_pace()})

    return authenticated


def _authentic_reader(view: Giver) -> Reader:
    """Authenticate a GET and pass its attempt to the view, as ``_authentic`` does."""

    @csrf_exempt
    @require_GET
    @functools.wraps(view)
    def authenticated(request: HttpRequest, attempt_id: UUID, **named: str) -> HttpResponseBase:
        return view(_present_attempt(request, attempt_id), **named)

    return authenticated


def _restored() -> Mapping[str, str]:
    epoch = restorations.EPOCH.current()
    return {contract.EPOCH: epoch} if epoch else {}


def _pace() -> Mapping[str, float]:
    seconds = request_load.OF_PROCESS.batch_seconds()
    measured.INGEST_BATCH_SECONDS.set(seconds)
    return {contract.PACE: seconds} if seconds > contract.BATCH_SECONDS else {}


def _present_attempt(request: HttpRequest, attempt_id: UUID) -> Attempt:
    attempt = authentic(attempt_id, _bearer(request))
    log_context.note(job=str(attempt.job_id), attempt=attempt.number)
    if trace := job_spans.trace_of(attempt.job):
        log_context.note(trace_id=trace.trace_id)
    if attempt.number < attempt.job.attempt:
        raise StaleAttempt(
            f"Attempt {attempt.number} was replaced by attempt {attempt.job.attempt}; stop and send no more.",
            attempt=attempt.job.attempt,
        )
    if attempt.finished is not None and attempt.finished < wall_clock() - LATE:
        raise StaleAttempt(
            messages.ATTEMPT_ENDED_LONG_AGO(number=attempt.number, days=LATE.days),
            attempt=attempt.job.attempt,
        )
    return attempt


def _replica(attempt: Attempt, name: str) -> str:
    """Return the name if the attempt has this replica, otherwise raise NotFound.

    A token cannot write in the name of another attempt's replicas.
    """
    if (attempt.pk, name) not in _known_replicas:
        if not Replica.objects.filter(attempt=attempt, name=name).exists():
            raise NotFound(messages.REPLICA_NOT_FOUND(name=f"{name!r}"))
        if len(_known_replicas) >= _KNOWN_LIMIT:
            _known_replicas.clear()
        _known_replicas.add((attempt.pk, name))
    return name


def _at_most(setting: str) -> Callable[[Handler], Handler]:
    """Limit the requests of an attempt to the rate of a setting. Agents send refused requests again.

    Reports and heartbeats are not limited: without them the attempt would be given up.
    """

    def limit(view: Handler) -> Handler:
        @functools.wraps(view)
        def limited(request: HttpRequest, attempt: Attempt) -> Answer:
            throttle.take_of(setting, str(attempt.pk), getattr(settings, setting))
            return view(request, attempt)

        return limited

    return limit


def _bearer(request: HttpRequest) -> str:
    scheme, _, token = request.headers.get("Authorization", "").partition(" ")
    if scheme.lower() != "bearer" or not token.strip():
        raise NotSignedIn("Send the attempt's token as 'Authorization: Bearer <token>'.")
    return token.strip()


def _body(request: HttpRequest, kind: str) -> Answer:
    """Return the JSON object in the body and count its bytes. Raises TooLarge, Malformed."""
    content = _read_all(request)
    measured.INGEST_BYTES.labels(kind).inc(len(content))
    try:
        body = json.loads(content)
    except (ValueError, RecursionError):
        raise Malformed("The body is not JSON.") from None
    if not isinstance(body, dict):
        raise Malformed("The body must be a JSON object.")
    return body


def _read_all(request: HttpRequest) -> bytes:
    """Read the whole body; one ``read`` may return a part of it.

    Raises TooLarge, before reading anything if Content-Length exceeds the limit.
    """
    announced = request.headers.get("Content-Length") or ""
    pieces, left = [], BODY_LIMIT
    is_large = announced.isascii() and announced.isdigit() and int(announced) > BODY_LIMIT
    while not is_large and (piece := request.read(left + 1)):
        pieces.append(piece)
        left -= len(piece)
        is_large = left < 0
    if is_large:
        raise TooLarge(f"The body has more than {BODY_LIMIT} bytes; send smaller batches.")
    return b"".join(pieces)


def _taken(append: Callable[[], int]) -> Answer:
    """Return the response to a batch: the last stored number. Raises BatchGap."""
    try:
        return {"last": append()}
    except Gap as gap:
        raise BatchGap(str(gap), last=gap.last, **_restored()) from None


@_authentic
@_at_most("INGEST_RATE")
def logs(request: HttpRequest, attempt: Attempt) -> Answer:
    """Store lines of output."""
    batch = payloads.log_batch(_body(request, "logs"))
    measured.INGEST_LINES.inc(len(batch.entries))
    return _taken(
        lambda: store.append_logs(
            job_id=attempt.job_id,
            attempt=attempt,
            replica=_replica(attempt, batch.replica),
            first=batch.first,
            lines=batch.entries,
            gone=batch.gone,
            start_number=batch.start_number,
        )
    )


@_authentic
@_at_most("INGEST_RATE")
def metrics(request: HttpRequest, attempt: Attempt) -> Answer:
    """Store metric points."""
    batch = payloads.metric_batch(_body(request, "metrics"))
    measured.INGEST_POINTS.inc(len(batch.entries))
    replica = _replica(attempt, batch.replica)
    return _taken(
        lambda: store.append_metrics(
            job_id=attempt.job_id,
            attempt=attempt,
            replica=replica,
            first=batch.first,
            points=batch.entries,
            on_first=partial(job_spans.note_first_point, attempt, replica),
            gone=batch.gone,
            start_number=batch.start_number,
        )
    )


@_authentic
@_at_most("INGEST_RATE")
def events(request: HttpRequest, attempt: Attempt) -> Answer:
    """Store events for the job's timeline."""
    batch = payloads.event_batch(_body(request, "events"))
    return _taken(
        lambda: replica_reports.record_events(
            attempt,
            replica=_replica(attempt, batch.replica),
            first=batch.first,
            events=batch.entries,
            gone=batch.gone,
            start_number=batch.start_number,
        )
    )


@_authentic
def report(request: HttpRequest, attempt: Attempt) -> Answer:
    """Store the reported state of a replica."""
    replica_reports.record_report(attempt, payloads.report(_body(request, "report")))
    return {}


@_authentic
def heartbeat(request: HttpRequest, attempt: Attempt) -> Answer:
    """Store a heartbeat of a replica."""
    body = _body(request, "heartbeat")
    replica = _replica(attempt, payloads.replica(body))
    fencing.check(attempt, replica, payloads.start_number(body))
    replica_reports.heartbeat(attempt, replica=replica)
    return {}


@_authentic
def begin(request: HttpRequest, attempt: Attempt) -> Answer:
    """Return the last stored numbers of a replica, for an agent that starts again."""
    body = _body(request, "begin")
    replica = _replica(attempt, payloads.replica(body))
    return dict(bootstrap.numbers(attempt, replica, payloads.start_number(body)))


@_authentic_reader
def stop(attempt: Attempt) -> JsonResponse:
    """Return the grace period of a replica that must stop."""
    return JsonResponse({"grace": bootstrap.grace(attempt)})


@_authentic_reader
def code(attempt: Attempt) -> HttpResponse:
    """Send the job's code, as a tar."""
    return HttpResponse(bootstrap.code(attempt), content_type="application/x-tar")


@_authentic_reader
def data(attempt: Attempt) -> JsonResponse:
    """List the files of the job's dataset."""
    return JsonResponse({"files": bootstrap.data_files(attempt)})


@_authentic_reader
def data_file(attempt: Attempt, path: str) -> StreamingHttpResponse:
    """Send one file of the job's dataset."""
    file = bootstrap.data_file(attempt, path)
    headers = {"Content-Length": str(file.stat().st_size)}
    return StreamingHttpResponse(_pieces(file.open("rb")), content_type="application/octet-stream", headers=headers)


async def _pieces(content: BinaryIO) -> AsyncIterator[bytes]:
    """Read in a thread, so that a slow disk or client does not block other requests."""
    try:
        while piece := await sync_to_async(content.read, thread_sensitive=False)(_PIECE):
            yield piece
    finally:
        content.close()


@_authentic
@_at_most("UPLOAD_RATE")
def artifacts(request: HttpRequest, attempt: Attempt) -> Answer:
    """Store an artifact of the attempt. The body is the raw bytes."""
    wanted, size = payloads.artifact(request.GET), _announced(request)
    if size > ARTIFACT_LIMIT:
        raise TooLarge(
            f"The file {wanted.name} has more than {ARTIFACT_LIMIT} bytes, which is all that is kept of one."
        )
    replica = _replica(attempt, wanted.replica)
    fencing.check(attempt, replica, wanted.start_number)
    kept = replica_reports.store_artifact(
        attempt,
        replica=replica,
        name=wanted.name,
        sha256=wanted.sha256,
        size=size,
        stream=cast(BinaryIO, CappedReader(request, ARTIFACT_LIMIT)),
    )
    measured.INGEST_BYTES.labels("artifacts").inc(kept.size)
    return {"name": kept.name, "size": kept.size, "sha256": kept.sha256}


def _announced(request: HttpRequest) -> int:
    """Return the length of the body, for which storage is reserved before reading it. Raises LengthRequired."""
    announced = request.headers.get("Content-Length") or ""
    if not (announced.isascii() and announced.isdigit()):
        raise LengthRequired(messages.CONTENT_LENGTH_MISSING())
    return int(announced)


class CappedReader:
    """Reader of a request's body that raises TooLarge past ``limit`` bytes, whatever length was announced."""

    def __init__(self, request: HttpRequest, limit: int) -> None:
        self._request, self._left, self._limit = request, limit, limit

    def read(self, size: int = -1) -> bytes:
        piece: bytes = self._request.read(size) if size >= 0 else self._request.read()
        self._left -= len(piece)
        if self._left < 0:
            raise TooLarge(f"The file has more than {self._limit} bytes, which is all that is kept of one.")
        return piece
