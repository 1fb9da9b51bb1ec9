"""HTTP API of uploads: how files are added to a version."""

from __future__ import annotations

from typing import Any, cast

from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import OpenApiParameter, extend_schema
from rest_framework import serializers, status
from rest_framework.parsers import BaseParser
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from datasets import checksums, selectors
from datasets.api.datasets import FileEntryOutput, file_entry
from datasets.checksums import BadChecksum, Checksum
from datasets.models import File
from datasets.uploads import announcement, completion, parts
from datasets.uploads.staging import Body
from datasets.uploads.upload_states import Place
from portal.common.errors import ValidationFailed
from portal.common.pagination import paginate
from rbac.access import signed_in
from rbac.api.common import DONE, page_of, read
from rbac.scopes import Scope


# --- Shapes ----------------------------------------------------------------------------------------------------------
class FileInput(serializers.Serializer[Any]):
    path = serializers.CharField(max_length=2000, trim_whitespace=False)
    size = serializers.IntegerField(min_value=0, max_value=2**62, help_text="bytes")
    sha256 = serializers.CharField(max_length=64, required=False, allow_blank=True)


class FileOutput(serializers.Serializer[Any]):
    id = serializers.IntegerField()
    path = serializers.CharField()
    size = serializers.IntegerField()
    part_size = serializers.IntegerField(help_text="Bytes of each part but the last.")
    parts = serializers.ListField(child=serializers.IntegerField(), help_text="The parts that are there, from 0.")
    checksums = serializers.ListField(
        child=serializers.CharField(), help_text="Of each of these parts, as it came: SHA-256 or CRC-32."
    )
    complete = serializers.BooleanField()


class AnnouncedFileOutput(FileOutput):
    hash_first = serializers.BooleanField(
        help_text="It may be kept already: announce it again with its SHA-256 before you send it."
    )


class CheckedFileOutput(FileOutput):
    checked = serializers.IntegerField(help_text="Bytes read again so far; ask again until it is complete.")


class DigestInput(serializers.Serializer[Any]):
    sha256 = serializers.CharField(max_length=64)


class PartsOutput(serializers.Serializer[Any]):
    parts = serializers.ListField(child=serializers.IntegerField())


def render(file: File) -> dict[str, Any]:
    """Return a file that is being received, for the API."""
    there = parts.checksums_of(file)
    return {
        "id": file.pk,
        "path": file.path,
        "size": file.size,
        "part_size": file.part_size,
        "parts": parts.numbers_of(file) if file.complete else list(there),
        "checksums": list(there.values()),
        "complete": file.complete,
    }


class BytesParser(BaseParser):
    """Parser that leaves the body unread: the view reads it in pieces."""

    media_type = "*/*"

    def parse(self, stream: Any, media_type: str | None = None, parser_context: Any = None) -> Any:
        """Return None. The CSRF check reads a form here, and a part must never be collected in memory."""
        return None


# --- Calls -----------------------------------------------------------------------------------------------------------
class FilesView(APIView):
    @extend_schema(
        operation_id="dataset_files_list",
        parameters=[OpenApiParameter("limit", int), OpenApiParameter("cursor", str)],
        responses=page_of(FileEntryOutput),
    )
    def get(self, request: Request, ns: str, name: str, number: int) -> Response:
        """The complete files of a version, by path."""
        version = selectors.version_for(request.user, ns, name, number)
        files = version.files.filter(blob__isnull=False)
        return Response(paginate(files, request.query_params, order=("path",), render=file_entry))

    @extend_schema(
        operation_id="dataset_files_announce",
        request=FileInput,
        responses={200: AnnouncedFileOutput, 201: AnnouncedFileOutput},
    )
    def post(self, request: Request, ns: str, name: str, number: int) -> Response:
        """Announce a file, or resume its upload (200). The response lists the parts that are there."""
        actor = signed_in(request.user)
        selectors.dataset_for(actor, ns, name, Scope.DATASET_WRITE)
        body = read(FileInput, request)
        announced = announcement.announce(actor=actor, place=Place(ns, name, number), **body)
        code = status.HTTP_201_CREATED if announced.created else status.HTTP_200_OK
        return Response({**render(announced.file), "hash_first": announced.hash_first}, status=code)


class FileView(APIView):
    @extend_schema(operation_id="dataset_files_take_out", responses={204: DONE})
    def delete(self, request: Request, ns: str, name: str, number: int, file_id: int) -> Response:
        """Remove a file from a version that is being filled."""
        announcement.take_out(actor=signed_in(request.user), place=Place(ns, name, number), file_id=file_id)
        return Response(status=status.HTTP_204_NO_CONTENT)


class PartView(APIView):
    """One part of a file. ``portal.http.request_streaming`` streams its body as it arrives."""

    parser_classes = (BytesParser,)

    @extend_schema(
        operation_id="dataset_parts_put",
        parameters=[OpenApiParameter(kind.header, str, OpenApiParameter.HEADER) for kind in checksums.KINDS],
        request={"application/octet-stream": OpenApiTypes.BINARY},
        responses=PartsOutput,
    )
    def put(self, request: Request, ns: str, name: str, number: int, file_id: int, part: int) -> Response:
        """Upload one part with its SHA-256 or CRC-32. When this returns, the part is stored durably."""
        actor = signed_in(request.user)
        version = selectors.version_for(actor, ns, name, number, Scope.DATASET_WRITE)
        selectors.file_for(actor, version, file_id)
        length = request.headers.get("Content-Length", "")
        received = parts.receive_part(
            actor=actor,
            place=Place(ns, name, number),
            file_id=file_id,
            number=part,
            checksum=_checksum(request),
            length=int(length) if length.isdecimal() else None,
            body=cast(Body, request._request),
        )
        return Response({"parts": received})


def _checksum(request: Request) -> Checksum:
    try:
        return checksums.announced(request.headers)
    except BadChecksum as error:
        raise ValidationFailed({error.header: [str(error)]}) from None


class CompleteView(APIView):
    @extend_schema(
        operation_id="dataset_files_complete",
        request=DigestInput,
        responses={200: CheckedFileOutput, 202: CheckedFileOutput},
    )
    def post(self, request: Request, ns: str, name: str, number: int, file_id: int) -> Response:
        """Complete a file: all of it is read again and verified. If that takes long (202), repeat the request."""
        actor, place = signed_in(request.user), Place(ns, name, number)
        selectors.version_for(actor, ns, name, number, Scope.DATASET_WRITE)
        digest = read(DigestInput, request)["sha256"]
        done = completion.complete(actor=actor, place=place, file_id=file_id, sha256=digest)
        code = status.HTTP_200_OK if done.file.complete else status.HTTP_202_ACCEPTED
        return Response({**render(done.file), "checked": done.checked}, status=code)
