"""HTTP API of datasets and their versions. For uploads, see ``datasets.api.uploads``."""

from __future__ import annotations

from typing import Any

from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import OpenApiParameter, OpenApiResponse, extend_schema
from rest_framework import serializers, status
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from datasets import downloads, garbage_collection, selectors, services, signals
from datasets.indexing import record_table
from datasets.models import DESCRIPTION_LIMIT, Dataset, File, Visibility
from datasets.states import VersionState
from datasets.storage import default_storage
from portal.common.messages import localized
from portal.common.pagination import paginate
from rbac.access import namespace_for, signed_in
from rbac.api.common import page_of, read
from rbac.scopes import Scope
from runtime.data.format_selection import MESSAGES, Unread

PREVIEW_RECORDS = 8
LARGEST_EXPECTED = 2**50


# --- Shapes ----------------------------------------------------------------------------------------------------------
class VersionOutput(serializers.Serializer[Any]):
    number = serializers.IntegerField()
    state = serializers.ChoiceField(choices=[str(state) for state in VersionState])
    why = serializers.CharField(help_text="Why it could not be sealed.")
    files = serializers.IntegerField()
    size = serializers.IntegerField(help_text="bytes")
    records = serializers.IntegerField(allow_null=True)
    created = serializers.DateTimeField()
    sealed = serializers.DateTimeField(allow_null=True)


class DatasetOutput(serializers.Serializer[Any]):
    name = serializers.CharField()
    namespace = serializers.CharField()
    full_name = serializers.CharField(help_text="As jobs call it: namespace/name.")
    description = serializers.CharField()
    visibility = serializers.ChoiceField(choices=Visibility.values)
    shared_with = serializers.ListField(child=serializers.CharField(), help_text="Shown to members of its namespace.")
    format = serializers.CharField()
    size = serializers.IntegerField(help_text="Bytes of the newest sealed version.")
    records = serializers.IntegerField(allow_null=True)
    latest = serializers.IntegerField(allow_null=True, help_text="The number of the newest sealed version.")
    created = serializers.DateTimeField(allow_null=True)
    owner = serializers.CharField(allow_null=True)
    deleted_at = serializers.DateTimeField(allow_null=True)
    versions = VersionOutput(many=True)


class DeletedDatasetOutput(DatasetOutput):
    gone_after = serializers.DateTimeField(help_text="Until then it can be restored.")


class RecordOutput(serializers.Serializer[Any]):
    features = serializers.ListField(help_text="Numbers, nested by the shape.")
    label = serializers.FloatField()  # type: ignore[assignment]


class ShippedDatasetOutput(DatasetOutput):
    title = serializers.CharField()
    task = serializers.CharField()
    features = serializers.ListField(child=serializers.IntegerField(), help_text="Shape of one record's features.")
    splits = serializers.DictField(child=serializers.IntegerField(), help_text="Number of records by split.")
    # Declared fields are removed from the class, so this does not hide an attribute of the base class.
    source = serializers.CharField()  # type: ignore[assignment]
    licence = serializers.CharField()
    preview = RecordOutput(many=True)


class DatasetInput(serializers.Serializer[Any]):
    name = serializers.CharField(max_length=200)
    description = serializers.CharField(max_length=DESCRIPTION_LIMIT, required=False, allow_blank=True)
    format = serializers.CharField(max_length=32, required=False, allow_blank=True)


class DatasetChanges(serializers.Serializer[Any]):
    description = serializers.CharField(max_length=DESCRIPTION_LIMIT, required=False, allow_blank=True)
    visibility = serializers.ChoiceField(choices=Visibility.values, required=False)


class SharesInput(serializers.Serializer[Any]):
    namespaces = serializers.ListField(child=serializers.CharField(max_length=63), max_length=services.SHARES_LIMIT)


class VersionInput(serializers.Serializer[Any]):
    expected_bytes = serializers.IntegerField(min_value=0, max_value=LARGEST_EXPECTED, required=False)


class PreviewQuery(serializers.Serializer[Any]):
    limit = serializers.IntegerField(min_value=1, max_value=record_table.RECORDS, default=20)


class ColumnOutput(serializers.Serializer[Any]):
    name = serializers.CharField()
    type = serializers.CharField(help_text="Such as `integer`, `text`, `float32 8 × 8`, or several with `or`.")


class PictureOutput(serializers.Serializer[Any]):
    record = serializers.IntegerField(help_text="The number of its record, from 0.")
    column = serializers.IntegerField(help_text="The number of its column, from 0.")
    # Declared fields are removed from the class, so this does not hide an attribute of the base class.
    source = serializers.CharField(help_text="A data: address.")  # type: ignore[assignment]
    width = serializers.IntegerField(help_text="pixels")
    height = serializers.IntegerField(help_text="pixels")


class StatisticsOutput(serializers.Serializer[Any]):
    records = serializers.IntegerField(allow_null=True)
    size = serializers.IntegerField(help_text="bytes")
    files = serializers.IntegerField()
    chunks = serializers.IntegerField(help_text="Pieces that trainers read on their own.")


class DatasetPreviewOutput(serializers.Serializer[Any]):
    format = serializers.CharField()
    file = serializers.CharField(help_text="The one that was looked at; empty where it was several, or none.")
    columns = ColumnOutput(many=True)
    more_columns = serializers.IntegerField(help_text="Further columns, which are not shown.")
    records = serializers.ListField(
        child=serializers.ListField(), help_text="One cell for each column: null, true, false, a number or a text."
    )
    pictures = PictureOutput(many=True)
    statistics = StatisticsOutput(help_text="Of the whole version.")
    why = serializers.CharField(help_text="Why there are no more records, if that is no matter of the limit.")


class UseOutput(serializers.Serializer[Any]):
    name = serializers.CharField()
    page = serializers.CharField(help_text="The path of its page.")
    namespace = serializers.CharField()
    owner = serializers.CharField()
    state = serializers.CharField()
    version = serializers.CharField(help_text="Of the dataset; empty where it does not say.")
    began = serializers.DateTimeField()


class UsesOutput(serializers.Serializer[Any]):
    uses = UseOutput(many=True)


class FileEntryOutput(serializers.Serializer[Any]):
    path = serializers.CharField()
    size = serializers.IntegerField()
    sha256 = serializers.CharField()
    format = serializers.CharField(help_text="Of its records; empty where jobs read none of it.")
    why = serializers.CharField(help_text="Why jobs read no records of it.")
    records = serializers.IntegerField(allow_null=True)


# --- Datasets -------------------------------------------------------------------------------------------------------
_LIST = [
    OpenApiParameter("q", str, description="A part of a name, or namespace/part."),
    OpenApiParameter("limit", int),
    OpenApiParameter("cursor", str, description="The `next` of the page before."),
]


class DatasetsView(APIView):
    @extend_schema(operation_id="datasets_list", parameters=_LIST, responses=page_of(DatasetOutput))
    def get(self, request: Request) -> Response:
        """All datasets that the caller may read, by name. The first page begins with the shipped datasets, in addition
        to its limit."""
        actor, query = request.user, request.query_params
        q = query.get("q", "")
        page = paginate(
            selectors.listed(actor, q),
            query,
            order=("namespace__name", "name"),
            render=lambda dataset: selectors.dataset_json(actor, dataset),
        )
        if not query.get("cursor"):
            shipped = [info for info in selectors.public() if q in info.name]
            page["results"] = [selectors.shipped_json(info) for info in shipped] + page["results"]
        return Response(page)


class NamespaceDatasetsView(APIView):
    @extend_schema(operation_id="namespace_datasets_list", parameters=_LIST, responses=page_of(DatasetOutput))
    def get(self, request: Request, ns: str) -> Response:
        """The datasets of a namespace, by name."""
        namespace = namespace_for(request.user, ns, Scope.DATASET_READ)
        rows = selectors.listed(request.user, request.query_params.get("q", ""), namespace)
        return Response(
            paginate(
                rows,
                request.query_params,
                order=("name",),
                render=lambda dataset: selectors.dataset_json(request.user, dataset),
            )
        )

    @extend_schema(operation_id="datasets_create", request=DatasetInput, responses={201: DatasetOutput})
    def post(self, request: Request, ns: str) -> Response:
        """Create a dataset. Its content is added in versions."""
        actor = signed_in(request.user)
        namespace_for(actor, ns, Scope.DATASET_WRITE)
        body = read(DatasetInput, request)
        dataset = services.create_dataset(actor=actor, namespace_name=ns, **body)
        return Response(selectors.dataset_json(actor, dataset), status=status.HTTP_201_CREATED)


class ShippedDatasetView(APIView):
    @extend_schema(operation_id="datasets_shipped", responses=ShippedDatasetOutput)
    def get(self, request: Request, name: str) -> Response:
        """One shipped dataset, with the first records of its first split."""
        info = selectors.find(selectors.PUBLIC + name)
        split = next(iter(info.splits))
        return Response(
            {
                **selectors.shipped_json(info),
                "title": info.title,
                "task": info.task,
                "features": info.features,
                "splits": info.records,
                "source": info.source,
                "licence": info.licence,
                "preview": selectors.preview(info, split, PREVIEW_RECORDS),
            }
        )


class DatasetView(APIView):
    @extend_schema(operation_id="datasets_get", responses=DatasetOutput)
    def get(self, request: Request, ns: str, name: str) -> Response:
        """One dataset with its versions, newest first."""
        dataset = selectors.dataset_for(request.user, ns, name)
        return Response(selectors.dataset_json(request.user, dataset, versions=True))

    @extend_schema(operation_id="datasets_change", request=DatasetChanges, responses=DatasetOutput)
    def patch(self, request: Request, ns: str, name: str) -> Response:
        """Change the description or who may read the dataset."""
        actor = signed_in(request.user)
        selectors.dataset_for(actor, ns, name, Scope.DATASET_WRITE)
        fields = read(DatasetChanges, request)
        dataset = services.change_dataset(actor=actor, ns=ns, name=name, fields=fields)
        return Response(selectors.dataset_json(actor, dataset, versions=True))

    @extend_schema(operation_id="datasets_delete", responses={202: DeletedDatasetOutput})
    def delete(self, request: Request, ns: str, name: str) -> Response:
        """Delete a dataset. It can be restored until `gone_after`."""
        actor = signed_in(request.user)
        dataset = services.delete_dataset(actor=actor, ns=ns, name=name)
        return Response(_deleted_json(actor, dataset), status=status.HTTP_202_ACCEPTED)


def _deleted_json(actor: Any, dataset: Dataset) -> dict[str, Any]:
    assert dataset.deleted_at is not None  # noqa: S101  it has just been deleted
    gone_after = dataset.deleted_at + garbage_collection.grace()
    return {**selectors.dataset_json(actor, dataset), "gone_after": gone_after}


class RestoreView(APIView):
    @extend_schema(operation_id="datasets_restore", request=None, responses=DatasetOutput)
    def post(self, request: Request, ns: str, name: str) -> Response:
        """Restore a deleted dataset."""
        actor = signed_in(request.user)
        dataset = services.restore_dataset(actor=actor, ns=ns, name=name)
        return Response(selectors.dataset_json(actor, dataset, versions=True))


class SharesView(APIView):
    @extend_schema(operation_id="datasets_share", request=SharesInput, responses=DatasetOutput)
    def put(self, request: Request, ns: str, name: str) -> Response:
        """Share the dataset with exactly these namespaces."""
        actor = signed_in(request.user)
        selectors.dataset_for(actor, ns, name, Scope.DATASET_WRITE)
        wanted = read(SharesInput, request)["namespaces"]
        dataset = services.share_dataset(actor=actor, ns=ns, name=name, namespaces=wanted)
        return Response(selectors.dataset_json(actor, dataset, versions=True))


class UsesView(APIView):
    @extend_schema(operation_id="datasets_uses", responses=UsesOutput)
    def get(self, request: Request, ns: str, name: str) -> Response:
        """The newest jobs that use the dataset and that the caller may see. Also available for shipped datasets."""
        full_name = selectors.named(request.user, ns, name)
        return Response({"uses": [_use_json(use) for use in signals.of(request.user, full_name)]})


def _use_json(use: signals.Use) -> dict[str, Any]:
    return {
        "name": use.name,
        "page": use.address,
        "namespace": use.namespace,
        "owner": use.owner,
        "state": use.state,
        "version": use.version,
        "began": use.began,
    }


# --- Versions --------------------------------------------------------------------------------------------------------
class VersionsView(APIView):
    @extend_schema(operation_id="dataset_versions_begin", request=VersionInput, responses={201: VersionOutput})
    def post(self, request: Request, ns: str, name: str) -> Response:
        """Create a version and reserve the expected bytes."""
        actor = signed_in(request.user)
        selectors.dataset_for(actor, ns, name, Scope.DATASET_WRITE)
        body = read(VersionInput, request)
        version = services.begin_version(actor=actor, ns=ns, name=name, **body)
        return Response(selectors.version_json(version), status=status.HTTP_201_CREATED)


class VersionView(APIView):
    @extend_schema(operation_id="dataset_versions_get", responses=VersionOutput)
    def get(self, request: Request, ns: str, name: str, number: int) -> Response:
        """One version."""
        return Response(selectors.version_json(selectors.version_for(request.user, ns, name, number)))

    @extend_schema(operation_id="dataset_versions_delete", responses={202: VersionOutput})
    def delete(self, request: Request, ns: str, name: str, number: int) -> Response:
        """Delete a version."""
        version = services.delete_version(actor=signed_in(request.user), ns=ns, name=name, number=number)
        return Response(selectors.version_json(version), status=status.HTTP_202_ACCEPTED)


class PreviewView(APIView):
    @extend_schema(operation_id="dataset_versions_preview", parameters=[PreviewQuery], responses=DatasetPreviewOutput)
    def get(self, request: Request, ns: str, name: str, number: int) -> Response:
        """The first records of a version and its totals. Shipped datasets have version 1."""
        query = PreviewQuery(data=request.query_params)
        query.is_valid(raise_exception=True)
        document = selectors.preview_for(request.user, ns, name, number)
        limit = query.validated_data["limit"]
        shown = [picture for picture in document["pictures"] if picture["record"] < limit]
        limited = {"records": document["records"][:limit], "pictures": shown, "why": localized(document["why"])}
        return Response({**document, **limited})


class SealView(APIView):
    @extend_schema(operation_id="dataset_versions_seal", request=None, responses={202: VersionOutput})
    def post(self, request: Request, ns: str, name: str, number: int) -> Response:
        """Close a version permanently. It is indexed next: poll until it is `sealed` or `failed`."""
        version = services.seal_version(actor=signed_in(request.user), ns=ns, name=name, number=number)
        return Response(selectors.version_json(version), status=status.HTTP_202_ACCEPTED)


class ContentView(APIView):
    @extend_schema(
        operation_id="dataset_content",
        parameters=[OpenApiParameter("Range", str, OpenApiParameter.HEADER, description="bytes=first-last")],
        responses={
            (200, "application/octet-stream"): OpenApiResponse(OpenApiTypes.BINARY),
            (206, "application/octet-stream"): OpenApiResponse(OpenApiTypes.BINARY),
        },
    )
    def get(self, request: Request, ns: str, name: str, number: int, path: str) -> Any:
        """A file of a version, or a range of it."""
        version = selectors.version_for(request.user, ns, name, number)
        file = selectors.content_of(version, path)
        if request.headers.get("If-None-Match") == f'"{file.sha256}"':
            return downloads.unchanged(file.sha256)
        span = downloads.span_of(request.headers.get("Range", ""), file.size)
        assert file.blob is not None  # noqa: S101  content_of gives whole files
        stream = default_storage().open(file.blob.key, span.first if span else 0)
        return downloads.answer(stream, file.path, file.size, file.sha256, span)


def file_entry(file: File) -> dict[str, Any]:
    """Return a file of a version for its list."""
    return {
        "path": file.path,
        "size": file.size,
        "sha256": file.sha256,
        "format": file.format,
        "why": MESSAGES[Unread(file.unread)] if file.unread else "",
        "records": file.records,
    }
