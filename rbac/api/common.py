"""Helpers of the API calls of this package: reading a body, the shape of a page."""

from __future__ import annotations

import functools
from typing import Any

from drf_spectacular.utils import OpenApiResponse, inline_serializer
from rest_framework import serializers
from rest_framework.request import Request

DONE = OpenApiResponse(description="Done; the response has no body.")


@functools.cache
def page_of(output: type[serializers.Serializer[Any]]) -> Any:
    """Return the shape of a page of these, for the API document."""
    fields = {"results": output(many=True), "next": serializers.CharField(allow_null=True)}
    return inline_serializer(f"{output.__name__.removesuffix('Output')}Page", fields)


def read(shape: type[serializers.Serializer[Any]], request: Request) -> dict[str, Any]:
    """Return the validated body of the request. Raises the framework's ValidationError."""
    body = shape(data=request.data)
    body.is_valid(raise_exception=True)
    checked: dict[str, Any] = body.validated_data
    return checked
