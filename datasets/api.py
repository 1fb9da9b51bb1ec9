"""The data sets over HTTP."""

from __future__ import annotations

from typing import Any

from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from datasets import selectors
from runtime.data.catalogue import DatasetInfo

PREVIEW_RECORDS = 8


class DatasetOutput(serializers.Serializer[Any]):
    name = serializers.CharField()
    title = serializers.CharField()
    task = serializers.CharField()
    features = serializers.ListField(child=serializers.IntegerField(), help_text="Shape of one record's features.")
    records = serializers.DictField(child=serializers.IntegerField(), help_text="Number of records by split.")
    # Declared fields are taken out of the class, so this hides nothing of its base.
    source = serializers.CharField()  # type: ignore[assignment]
    licence = serializers.CharField()


class RecordOutput(serializers.Serializer[Any]):
    features = serializers.ListField(help_text="Numbers, nested by the shape.")
    label = serializers.FloatField()  # type: ignore[assignment]


class DatasetWithPreviewOutput(DatasetOutput):
    preview = RecordOutput(many=True)


class DatasetPageOutput(serializers.Serializer[Any]):
    results = DatasetOutput(many=True)
    next = serializers.CharField(allow_null=True)


def render(info: DatasetInfo) -> dict[str, Any]:
    """A data set as the API shows it; where its files lie is nobody's business."""
    shown = ("name", "title", "task", "features", "records", "source", "licence")
    return {field: getattr(info, field) for field in shown}


class DatasetsView(APIView):
    """The data sets that are shipped with the portal, by name. All on one page: ``next`` is null."""

    @extend_schema(responses=DatasetPageOutput)
    def get(self, request: Request) -> Response:
        return Response({"results": [render(info) for info in selectors.public()], "next": None})


class PublicDatasetView(APIView):
    """One of them, with the first records of its first split."""

    @extend_schema(responses=DatasetWithPreviewOutput)
    def get(self, request: Request, name: str) -> Response:
        info = selectors.find(selectors.PUBLIC + name)
        split = next(iter(info.splits))
        return Response({**render(info), "preview": selectors.preview(info, split, PREVIEW_RECORDS)})
