"""Views of programs that are held at their exception."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any
from uuid import UUID

from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from jobs.api.inspection import FrameOutput
from jobs.services import holding
from jobs.services.holding import Asked
from portal.common.messages import localized
from rbac.access import signed_in
from runtime import contract


class ReleaseInput(serializers.Serializer[Any]):
    replicas = serializers.ListField(
        child=serializers.CharField(), required=False, allow_null=True, min_length=1, help_text="null: all."
    )


class HoldInput(ReleaseInput):
    seconds = serializers.IntegerField(
        required=False, min_value=0, max_value=contract.HOLD_SECONDS_LIMIT, help_text="900 by default. 0: hold none."
    )


class VariablesInput(serializers.Serializer[Any]):
    replica = serializers.CharField(help_text="<role>-<index>")


class AskedReplicaOutput(serializers.Serializer[Any]):
    replica = serializers.CharField(help_text="<role>-<index>")
    held = serializers.BooleanField(help_text="Its program is held now.")
    note = serializers.CharField(allow_null=True, help_text="Why its agent could not be asked.")


class AskedOutput(serializers.Serializer[Any]):
    replicas = AskedReplicaOutput(many=True)


class VariableOutput(serializers.Serializer[Any]):
    name = serializers.CharField(allow_blank=True)
    type = serializers.CharField(allow_blank=True)
    size = serializers.IntegerField(
        allow_null=True, help_text="Bytes of an array's elements, or of the object without what it refers to."
    )
    shape = serializers.CharField(
        allow_blank=True, help_text="Length of a container; shape and element type of an array."
    )
    text = serializers.CharField(allow_blank=True, help_text="The value, shortened.")


class HeldFrameOutput(FrameOutput):
    variables = VariableOutput(many=True)


class VariablesOutput(serializers.Serializer[Any]):
    attempt = serializers.IntegerField()
    replica = serializers.CharField()
    exception = serializers.CharField(allow_blank=True, help_text="The type of the exception.")
    message = serializers.CharField(allow_blank=True)
    complete = serializers.BooleanField(help_text="Nothing was left out for its size or time.")
    frames = HeldFrameOutput(many=True, help_text="The innermost first.")


class HoldView(APIView):
    @extend_schema(operation_id="jobs_hold", request=HoldInput, responses=AskedOutput)
    def post(self, request: Request, job_id: UUID) -> Response:
        """Hold programs of running replicas that end with an exception, or change the time of those that are held.

        Only for developers.
        """
        return _answer(holding.hold(actor=signed_in(request.user), job_id=job_id, wanted=request.data))


class ReleaseView(APIView):
    @extend_schema(operation_id="jobs_release", request=ReleaseInput, responses=AskedOutput)
    def post(self, request: Request, job_id: UUID) -> Response:
        """Let programs end that are held at their exception. Only for developers."""
        return _answer(holding.release(actor=signed_in(request.user), job_id=job_id, wanted=request.data))


class VariablesView(APIView):
    @extend_schema(operation_id="jobs_variables", request=VariablesInput, responses=VariablesOutput)
    def post(self, request: Request, job_id: UUID) -> Response:
        """Return the frames of a held program with their variables. For accounts that may run programs there."""
        found = holding.variables(actor=signed_in(request.user), job_id=job_id, wanted=request.data)
        return Response({"attempt": found.attempt, "replica": found.replica, **asdict(found.program)})


def _answer(asked: list[Asked]) -> Response:
    return Response({"replicas": [{**asdict(one), "note": localized(one.note) if one.note else None} for one in asked]})
