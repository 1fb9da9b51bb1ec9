"""What agents send: output, metrics, reports, events, signs of life, artifacts. The messages stand in
``runtime.contract``.

Every view finds the attempt by its id, compares the digest of the token that the agent shows, and refuses what comes
from an attempt that has been replaced, names a replica that the attempt does not have, or comes long after the end:
what was printed last often comes after the job has ended, but not a day later.
"""

from __future__ import annotations

import functools
import hmac
import json
from collections.abc import AsyncIterator, Callable
from datetime import timedelta
from typing import Any, BinaryIO, cast
from uuid import UUID

from asgiref.sync import sync_to_async
from django.conf import settings
from django.http import HttpRequest, HttpResponse, HttpResponseBase, JsonResponse, StreamingHttpResponse
from django.views.decorators.csrf import csrf_exempt
from django.views.decorators.http import require_GET, require_POST

from jobs.ingest import bootstrap, payloads
from jobs.models import Attempt, Replica
from jobs.services import replica_reports
from jobs.streams import store
from jobs.streams.entries import Gap
from portal.common.clock import now as wall_clock
from portal.common.errors import Conflict, NotFound, NotSignedIn, RegattaError, StaleAttempt, TooLarge
from rbac import throttle
from rbac.selectors import digest_of

BODY_LIMIT = 1024 * 1024  # bytes of a JSON body
ARTIFACT_LIMIT = 2 * 1024**3  # bytes of one artifact
_PIECE = 1024 * 1024  # bytes of a file that are read at a time
# What an attempt sends is taken for so long after its end.
LATE = timedelta(days=1)
# (attempt, replica) that were found in the database: an attempt loses none of its replicas.
_known_replicas: set[tuple[UUID, str]] = set()
_KNOWN_LIMIT = 10_000

Answer = dict[str, Any]
View = Callable[..., JsonResponse]
Handler = Callable[[HttpRequest, Attempt], Answer]
Reader = Callable[..., HttpResponseBase]
Giver = Callable[..., HttpResponseBase]


class Malformed(RegattaError):
    """The body is no JSON object."""

    code = "malformed"
    status = 400


class LengthRequired(RegattaError):
    """A file of unknown length: nobody can say whether there is room for it."""

    code = "length_required"
    status = 411


class BatchGap(Conflict):
    """The batch begins beyond the entries that were taken. ``last`` says where to go on from."""

    code = "gap"


def _authentic(view: Handler) -> View:
    """Give the view its attempt. Raises NotFound, NotSignedIn, StaleAttempt."""

    @csrf_exempt
    @require_POST
    @functools.wraps(view)
    def authenticated(request: HttpRequest, attempt_id: UUID) -> JsonResponse:
        return JsonResponse(view(request, _present_attempt(request, attempt_id)))

    return authenticated


def _authentic_reader(view: Giver) -> Reader:
    """The same for a view that gives something out."""

    @csrf_exempt
    @require_GET
    @functools.wraps(view)
    def authenticated(request: HttpRequest, attempt_id: UUID, **named: str) -> HttpResponseBase:
        return view(_present_attempt(request, attempt_id), **named)

    return authenticated


def _present_attempt(request: HttpRequest, attempt_id: UUID) -> Attempt:
    attempt = _attempt(attempt_id, _bearer(request))
    if attempt.number < attempt.job.attempt:
        raise StaleAttempt(
            f"Attempt {attempt.number} was replaced by attempt {attempt.job.attempt}; stop and send no more.",
            attempt=attempt.job.attempt,
        )
    if attempt.finished is not None and attempt.finished < wall_clock() - LATE:
        raise StaleAttempt(
            f"Attempt {attempt.number} ended more than {LATE.days} day ago; stop and send no more.",
            attempt=attempt.job.attempt,
        )
    return attempt


def _replica(attempt: Attempt, name: str) -> str:
    """The name, if the attempt has this replica. Raises NotFound: a token writes nothing in the name of others."""
    if (attempt.pk, name) not in _known_replicas:
        if not Replica.objects.filter(attempt=attempt, name=name).exists():
            raise NotFound(f"This attempt has no replica {name!r}.")
        if len(_known_replicas) >= _KNOWN_LIMIT:
            _known_replicas.clear()
        _known_replicas.add((attempt.pk, name))
    return name


def _at_most(setting: str) -> Callable[[Handler], Handler]:
    """Take no more of an attempt than the rate of that setting; agents send again what was refused. Reports and signs
    of life are not counted: without them the attempt would be given up.
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


def _attempt(attempt_id: UUID, token: str) -> Attempt:
    attempt = Attempt.objects.select_related("job").filter(pk=attempt_id).first()
    digest = digest_of(token)
    if attempt is not None and hmac.compare_digest(attempt.token_digest, digest):
        return attempt
    if attempt is None or Attempt.objects.filter(token_digest=digest).exists():
        raise NotFound("There is no such attempt, or this token belongs to another one.")
    raise NotSignedIn("This token is not the attempt's. An agent gets the right one when it is started.")


def _body(request: HttpRequest) -> Answer:
    """The JSON object in the body. Raises TooLarge, Malformed."""
    try:
        body = json.loads(_read_all(request))
    except (ValueError, RecursionError):
        raise Malformed("The body is not JSON.") from None
    if not isinstance(body, dict):
        raise Malformed("The body must be a JSON object.")
    return body


def _read_all(request: HttpRequest) -> bytes:
    """The body, of which one read may return a part. Raises TooLarge, before anything is read where it says so."""
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
    """The answer to a batch: the last number taken. Raises BatchGap."""
    try:
        return {"last": append()}
    except Gap as gap:
        raise BatchGap(str(gap), last=gap.last) from None


@_authentic
@_at_most("INGEST_RATE")
def logs(request: HttpRequest, attempt: Attempt) -> Answer:
    """Take lines of output."""
    batch = payloads.log_batch(_body(request))
    return _taken(
        lambda: store.append_logs(
            job_id=attempt.job_id,
            attempt=attempt,
            replica=_replica(attempt, batch.replica),
            first=batch.first,
            lines=batch.entries,
        )
    )


@_authentic
@_at_most("INGEST_RATE")
def metrics(request: HttpRequest, attempt: Attempt) -> Answer:
    """Take metric points."""
    batch = payloads.metric_batch(_body(request))
    return _taken(
        lambda: store.append_metrics(
            job_id=attempt.job_id,
            attempt=attempt,
            replica=_replica(attempt, batch.replica),
            first=batch.first,
            points=batch.entries,
        )
    )


@_authentic
@_at_most("INGEST_RATE")
def events(request: HttpRequest, attempt: Attempt) -> Answer:
    """Take events for the job's timeline."""
    batch = payloads.event_batch(_body(request))
    return _taken(
        lambda: replica_reports.record_events(
            attempt, replica=_replica(attempt, batch.replica), first=batch.first, events=batch.entries
        )
    )


@_authentic
def report(request: HttpRequest, attempt: Attempt) -> Answer:
    """Take word of how a replica fares."""
    replica_reports.record_report(attempt, payloads.report(_body(request)))
    return {}


@_authentic
def heartbeat(request: HttpRequest, attempt: Attempt) -> Answer:
    """Note that a replica lives."""
    replica_reports.heartbeat(attempt, replica=_replica(attempt, payloads.replica(_body(request))))
    return {}


@_authentic
def begin(request: HttpRequest, attempt: Attempt) -> Answer:
    """Tell a replica that begins anew how far its earlier lives were taken in."""
    return dict(bootstrap.numbers(attempt, _replica(attempt, payloads.replica(_body(request)))))


@_authentic_reader
def stop(attempt: Attempt) -> JsonResponse:
    """Tell a replica that was asked to end how long it may take."""
    return JsonResponse({"grace": bootstrap.grace(attempt)})


@_authentic_reader
def code(attempt: Attempt) -> HttpResponse:
    """Give the job's code, as a tar."""
    return HttpResponse(bootstrap.code(attempt), content_type="application/x-tar")


@_authentic_reader
def data(attempt: Attempt) -> JsonResponse:
    """List the files of the job's dataset."""
    return JsonResponse({"files": bootstrap.data_files(attempt)})


@_authentic_reader
def data_file(attempt: Attempt, path: str) -> StreamingHttpResponse:
    """Give one of them."""
    file = bootstrap.data_file(attempt, path)
    headers = {"Content-Length": str(file.stat().st_size)}
    return StreamingHttpResponse(_pieces(file.open("rb")), content_type="application/octet-stream", headers=headers)


async def _pieces(content: BinaryIO) -> AsyncIterator[bytes]:
    """Read in a thread, so that a slow disk or reader holds up nobody else."""
    try:
        while piece := await sync_to_async(content.read, thread_sensitive=False)(_PIECE):
            yield piece
    finally:
        content.close()


@_authentic
@_at_most("UPLOAD_RATE")
def artifacts(request: HttpRequest, attempt: Attempt) -> Answer:
    """Keep a file that the attempt left. The raw bytes are the body."""
    wanted, size = payloads.artifact(request.GET), _announced(request)
    if size > ARTIFACT_LIMIT:
        raise TooLarge(
            f"The file {wanted.name} has more than {ARTIFACT_LIMIT} bytes, which is all that is kept of one."
        )
    kept = replica_reports.store_artifact(
        attempt,
        replica=_replica(attempt, wanted.replica),
        name=wanted.name,
        sha256=wanted.sha256,
        size=size,
        stream=cast(BinaryIO, CappedReader(request, ARTIFACT_LIMIT)),
    )
    return {"name": kept.name, "size": kept.size, "sha256": kept.sha256}


def _announced(request: HttpRequest) -> int:
    """The length of the body: room is taken for it before it is read. Raises LengthRequired."""
    announced = request.headers.get("Content-Length") or ""
    if not (announced.isascii() and announced.isdigit()):
        raise LengthRequired("Say how long the file is, in the header Content-Length.")
    return int(announced)


class CappedReader:
    """Reads a request's body and raises TooLarge past ``limit`` bytes, whatever the length that was announced."""

    def __init__(self, request: HttpRequest, limit: int) -> None:
        self._request, self._left, self._limit = request, limit, limit

    def read(self, size: int = -1) -> bytes:
        piece: bytes = self._request.read(size) if size >= 0 else self._request.read()
        self._left -= len(piece)
        if self._left < 0:
            raise TooLarge(f"The file has more than {self._limit} bytes, which is all that is kept of one.")
        return piece
