"""Views of the HTTP API of jobs. Each call parses, authorises, calls one service or selector, and renders."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from dataclasses import asdict
from functools import partial
from typing import IO, Any, BinaryIO
from uuid import UUID

from asgiref.sync import sync_to_async
from django.conf import settings
from django.http import StreamingHttpResponse
from django.utils.http import content_disposition_header
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import OpenApiParameter, OpenApiResponse, extend_schema
from rest_framework import status
from rest_framework.parsers import BaseParser
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from datasets import selectors as datasets
from jobs import examples
from jobs.api.schemas import (
    ArtifactsOutput,
    ExamplesOutput,
    FilesOutput,
    JobOutput,
    JobPageOutput,
    PreviewOutput,
    RehearseInput,
    ScaleInput,
    SpecOutput,
    TimelineOutput,
    TimelineQuery,
)
from jobs.models import Artifact, Job
from jobs.selectors import jobs as job_selectors
from jobs.selectors import specifications, timeline
from jobs.services import jobs as job_services
from jobs.services import pausing, scaling
from jobs.spec import parser as specification
from jobs.spec.fields import json_schema
from portal.common.errors import ValidationFailed
from portal.common.messages import localized, localized_job
from portal.common.pagination import PARAMETERS, paginate
from portal.common.parsers import BoundedJSONParser
from rbac import throttle
from rbac.access import namespace_for, signed_in
from rbac.models import User
from rbac.scopes import Scope

_PIECE = 256 * 1024


# --- Bodies ----------------------------------------------------------------------------------------------------------
class SpecYamlParser(BaseParser):
    """Parser that leaves YAML as text: ``jobs.spec.parser`` parses it and reports the places of errors."""

    media_type = "application/yaml"

    def parse(
        self, stream: IO[Any], media_type: str | None = None, parser_context: Mapping[str, Any] | None = None
    ) -> Any:
        return stream.read(specification.DOCUMENT_LIMIT + 1)


class SpecYamlTextParser(SpecYamlParser):
    media_type = "text/yaml"


class SpecOldYamlParser(SpecYamlParser):
    media_type = "application/x-yaml"


# --- Jobs ------------------------------------------------------------------------------------------------------------
_SPEC_BODY = {"application/json": json_schema(), "application/yaml": OpenApiTypes.STR}


class NamespaceJobsView(APIView):
    parser_classes = (BoundedJSONParser, SpecYamlParser, SpecYamlTextParser, SpecOldYamlParser)

    @extend_schema(
        operation_id="jobs_list",
        parameters=[
            OpenApiParameter("state", str, description="States, separated by commas; ACTIVE and ENDED are groups."),
            OpenApiParameter("owner", str, description="A user's name."),
            OpenApiParameter("q", str, description="A part of the job's name."),
            *PARAMETERS,
        ],
        responses=JobPageOutput,
    )
    def get(self, request: Request, ns: str) -> Response:
        """List the jobs of a namespace, the newest first."""
        namespace = namespace_for(request.user, ns, Scope.JOB_READ)
        query = request.query_params
        jobs = job_selectors.jobs_in(request.user, namespace, query)
        return Response(paginate(jobs, query, order=("-created", "-id"), render=_localized_job))

    @extend_schema(
        operation_id="jobs_submit",
        parameters=[
            OpenApiParameter("dry_run", bool, description="Validate and decide only; create nothing."),
            OpenApiParameter("Idempotency-Key", str, OpenApiParameter.HEADER, description="Makes it safe to repeat."),
        ],
        request=_SPEC_BODY,
        responses={201: JobOutput, 200: PreviewOutput},
    )
    def post(self, request: Request, ns: str) -> Response:
        """Submit a job. With `dry_run=true`, only return the expected result."""
        actor = signed_in(request.user)
        try:
            wanted = specifications.parse(request.data, find_dataset=partial(datasets.resolve, actor, ns))
        except ValidationFailed:
            # A caller who may not submit here gets that error, not the errors of the specification.
            namespace_for(actor, ns, Scope.JOB_WRITE)
            raise
        if request.query_params.get("dry_run", "").lower() in ("1", "true", "yes"):
            return Response(_preview_json(job_services.preview_job(actor=actor, namespace=ns, spec=wanted)))
        _count_submission(actor)
        taken = job_services.submit_job(
            actor=actor,
            namespace=ns,
            spec=wanted,
            idempotency_key=request.headers.get("Idempotency-Key"),
        )
        if taken.created:
            return Response(localized_job(job_selectors.submitted_json(taken.job)), status=status.HTTP_201_CREATED)
        body = job_selectors.job_document(taken.job.pk)
        return Response(body and localized_job(body))


def _count_submission(actor: User) -> None:
    """Count a submission. Raises TooManyRequests if the account starts jobs more often than SUBMIT_RATE allows."""
    throttle.take_of("submit", str(actor.pk), settings.SUBMIT_RATE)


def _preview_json(preview: job_services.Preview) -> dict[str, Any]:
    body = asdict(preview)
    return {
        "verdict": body["verdict"],
        "reason": localized(body["reason"]),
        "numbers": body["numbers"],
        "plan": {"amounts": body["amounts"], "replicas": body["replicas"]},
    }


def _localized_job(job: Job) -> dict[str, Any]:
    """Render a job in the reader's language."""
    return localized_job(job_selectors.job_detail(job))


class _JobView(APIView):
    def job(self, request: Request, job_id: UUID) -> Job:
        return job_selectors.job_for(request.user, job_id, Scope.JOB_READ)


class JobView(_JobView):
    @extend_schema(operation_id="jobs_get", responses=JobOutput)
    def get(self, request: Request, job_id: UUID) -> Response:
        """Return a job."""
        return Response(_localized_job(self.job(request, job_id)))

    @extend_schema(operation_id="jobs_delete", responses={204: None})
    def delete(self, request: Request, job_id: UUID) -> Response:
        """Delete a job that has ended, with its code, log, metrics, files and checkpoints."""
        job_services.delete_job(actor=signed_in(request.user), job_id=job_id)
        return Response(status=status.HTTP_204_NO_CONTENT)


class CancelView(APIView):
    @extend_schema(operation_id="jobs_cancel", request=None, responses={202: JobOutput})
    def post(self, request: Request, job_id: UUID) -> Response:
        """Request the cancellation of a job. It has ended once its state is a final one."""
        job = job_services.cancel_job(actor=signed_in(request.user), job_id=job_id)
        return Response(_localized_job(job), status=status.HTTP_202_ACCEPTED)


class PauseView(APIView):
    @extend_schema(operation_id="jobs_pause", request=None, responses={202: JobOutput})
    def post(self, request: Request, job_id: UUID) -> Response:
        """Pause a running job: its trainers stop between two steps. All stand once ``pause.done`` is true."""
        job = pausing.pause(actor=signed_in(request.user), job_id=job_id)
        return Response(_localized_job(job), status=status.HTTP_202_ACCEPTED)


class ResumeView(APIView):
    @extend_schema(operation_id="jobs_resume", request=None, responses={202: JobOutput})
    def post(self, request: Request, job_id: UUID) -> Response:
        """Let a paused job go on."""
        job = pausing.resume(actor=signed_in(request.user), job_id=job_id)
        return Response(_localized_job(job), status=status.HTTP_202_ACCEPTED)


class RetryView(APIView):
    @extend_schema(operation_id="jobs_retry", request=None, responses={202: JobOutput})
    def post(self, request: Request, job_id: UUID) -> Response:
        """Run a job that has ended again, as its next attempt."""
        _count_submission(signed_in(request.user))
        job = job_services.retry_job(actor=signed_in(request.user), job_id=job_id)
        return Response(_localized_job(job), status=status.HTTP_202_ACCEPTED)


class ScaleView(APIView):
    @extend_schema(operation_id="jobs_scale", request=ScaleInput, responses={202: JobOutput})
    def post(self, request: Request, job_id: UUID) -> Response:
        """Set the desired numbers of replicas. Trainers join and leave while the job runs.

        A number of parameter servers takes effect with the next attempt, which continues from the last checkpoint.
        """
        actor = signed_in(request.user)
        job = scaling.scale_job(actor=actor, job_id=job_id, desired=request.data)
        return Response(_localized_job(job), status=status.HTTP_202_ACCEPTED)


class RehearseView(APIView):
    @extend_schema(operation_id="jobs_rehearse", request=RehearseInput, responses={202: JobOutput})
    def post(self, request: Request, job_id: UUID) -> Response:
        """Kill a replica of a role at each interval, to see the job survive. Only for the job's owner."""
        return self._rehearse(request, job_id, request.data)

    @extend_schema(operation_id="jobs_rehearse_end", responses={202: JobOutput})
    def delete(self, request: Request, job_id: UUID) -> Response:
        """End the rehearsal."""
        return self._rehearse(request, job_id, {"kill": None})

    def _rehearse(self, request: Request, job_id: UUID, rehearsal: object) -> Response:
        actor = signed_in(request.user)
        job = job_services.rehearse(actor=actor, job_id=job_id, rehearsal=rehearsal)
        return Response(_localized_job(job), status=status.HTTP_202_ACCEPTED)


class CloneView(_JobView):
    @extend_schema(operation_id="jobs_clone", request=None, responses=SpecOutput)
    def post(self, request: Request, job_id: UUID) -> Response:
        """Return the job's specification with its files, to be changed and submitted as another job."""
        return Response({"spec": job_selectors.document(self.job(request, job_id))})


# --- Data of a job ---------------------------------------------------------------------------------------------------
class EventsView(_JobView):
    @extend_schema(operation_id="jobs_events", parameters=[TimelineQuery], responses=TimelineOutput)
    def get(self, request: Request, job_id: UUID) -> Response:
        """Return a page of the timeline: changes of state and events of replicas. Without `before`, the newest."""
        job = self.job(request, job_id)
        query = TimelineQuery(data=request.query_params)
        query.is_valid(raise_exception=True)
        page = timeline.page_of(job, **query.validated_data)
        return Response(
            {"events": [{**event, "text": localized(event["text"])} for event in page.entries], "older": page.older}
        )


class FilesView(_JobView):
    @extend_schema(operation_id="jobs_files", responses=FilesOutput)
    def get(self, request: Request, job_id: UUID) -> Response:
        """Return the code as it was submitted."""
        return Response({"files": job_selectors.files(self.job(request, job_id))})


class ArtifactsView(_JobView):
    @extend_schema(operation_id="jobs_artifacts", parameters=[*PARAMETERS], responses=ArtifactsOutput)
    def get(self, request: Request, job_id: UUID) -> Response:
        """List the files that the job left, such as the trained model, by name."""
        found = job_selectors.artifacts(self.job(request, job_id))
        page = paginate(found, request.query_params, order=("name",), render=_artifact_json)
        return Response({"artifacts": page["results"], "next": page["next"]})


def _artifact_json(artifact: Artifact) -> dict[str, Any]:
    return {"name": artifact.name, "size": artifact.size, "sha256": artifact.sha256}


class ArtifactView(_JobView):
    @extend_schema(
        operation_id="jobs_artifact",
        responses={(200, "application/octet-stream"): OpenApiResponse(OpenApiTypes.BINARY)},
    )
    def get(self, request: Request, job_id: UUID, name: str) -> StreamingHttpResponse:
        """Download one artifact, unchanged."""
        artifact, content = job_selectors.artifact(self.job(request, job_id), name)
        # The browser must never render a file of a job, whatever its type.
        headers = {
            "Content-Disposition": content_disposition_header(True, name.rsplit("/", 1)[-1]),
            "Content-Length": str(artifact.size),
            "X-Content-Type-Options": "nosniff",
            "ETag": f'"{artifact.sha256}"',
        }
        return StreamingHttpResponse(_pieces(content), content_type="application/octet-stream", headers=headers)


async def _pieces(content: BinaryIO) -> AsyncIterator[bytes]:
    """Read in a thread, so that a slow disk or client does not block other requests."""
    read = sync_to_async(content.read, thread_sensitive=False)
    try:
        while piece := await read(_PIECE):
            yield piece
    finally:
        content.close()


class ExamplesView(APIView):
    @extend_schema(operation_id="examples_list", responses=ExamplesOutput)
    def get(self, request: Request) -> Response:
        """List the example jobs, all on one page: `next` is null."""
        return Response({"results": [asdict(example) for example in examples.catalogue()], "next": None})
