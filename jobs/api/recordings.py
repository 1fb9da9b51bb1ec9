"""Views of the HTTP API of recordings of terminals, for owners of the namespace."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from django.http import StreamingHttpResponse
from django.utils.http import content_disposition_header
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import OpenApiResponse, extend_schema
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from jobs.api.streams import from_thread
from jobs.models import TerminalRecording
from jobs.terminals import recordings
from rbac.access import signed_in


class RecordingOutput(serializers.Serializer[Any]):
    id = serializers.UUIDField()
    replica = serializers.CharField()
    person = serializers.CharField()
    started = serializers.DateTimeField()
    ended = serializers.DateTimeField(allow_null=True)
    size = serializers.IntegerField()


class RecordingsOutput(serializers.Serializer[Any]):
    recordings = RecordingOutput(many=True)


class RecordingsView(APIView):
    """The recordings of one job."""

    @extend_schema(operation_id="jobs_recordings", responses=RecordingsOutput)
    def get(self, request: Request, job_id: UUID) -> Response:
        """List the recordings of the job's terminals, newest first, for owners of the namespace."""
        found = recordings.recordings_for(signed_in(request.user), job_id)
        return Response({"recordings": [_json(recording) for recording in found]})


class RecordingView(APIView):
    """One recording."""

    @extend_schema(
        operation_id="jobs_recording",
        responses={(200, "application/octet-stream"): OpenApiResponse(OpenApiTypes.BINARY)},
    )
    def get(self, request: Request, job_id: UUID, recording_id: UUID) -> StreamingHttpResponse:
        """Download a recording in the format asciicast 2, which `asciinema play` shows."""
        recording, content = recordings.content_for(signed_in(request.user), job_id, recording_id)
        headers = {
            "Content-Disposition": content_disposition_header(True, f"{recording.replica}-{recording.pk}.cast"),
            "Content-Length": str(recording.size),
            "X-Content-Type-Options": "nosniff",
        }
        return StreamingHttpResponse(from_thread(content), content_type="application/octet-stream", headers=headers)


def _json(recording: TerminalRecording) -> dict[str, Any]:
    output: dict[str, Any] = RecordingOutput(recording).data
    return output
