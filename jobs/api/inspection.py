"""Views that look into the running replicas of a job."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any
from uuid import UUID

from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from jobs.control.stack_groups import STATES
from jobs.services import inspection
from portal.common.messages import localized
from rbac.access import signed_in


class FrameOutput(serializers.Serializer[Any]):
    file = serializers.CharField()
    line = serializers.IntegerField(help_text="0: not known.")
    function = serializers.CharField()


class ThreadOutput(serializers.Serializer[Any]):
    id = serializers.IntegerField()
    name = serializers.CharField(allow_blank=True)
    native = serializers.BooleanField(help_text="Python does not know the thread; it has no frames.")
    process = serializers.IntegerField(help_text="The number of its process, as the process sees it.")
    frames = FrameOutput(many=True, help_text="The innermost first.")


class ReplicaStacksOutput(serializers.Serializer[Any]):
    replica = serializers.CharField(help_text="<role>-<index>")
    state = serializers.ChoiceField(choices=[(state, state) for state in STATES])
    note = serializers.CharField(allow_null=True, help_text="A message about the state.")
    threads = ThreadOutput(many=True)
    left_out = serializers.IntegerField(help_text="Threads beyond the limits of an answer.")


class GroupOutput(serializers.Serializer[Any]):
    frames = FrameOutput(many=True)
    members = serializers.ListField(child=serializers.DictField(), help_text="replica and thread")
    roles = serializers.DictField(help_text="The number of replicas by role.")


class StacksOutput(serializers.Serializer[Any]):
    attempt = serializers.IntegerField()
    spread_ms = serializers.FloatField(help_text="Time between the first and the last question to an agent.")
    replicas = ReplicaStacksOutput(many=True)
    groups = GroupOutput(many=True, help_text="Threads with equal stacks, the largest groups first.")


class FlameGraphInput(serializers.Serializer[Any]):
    seconds = serializers.FloatField(
        required=False,
        min_value=inspection.LEAST_SECONDS,
        max_value=inspection.MOST_SECONDS,
        help_text="10 by default.",
    )
    replicas = serializers.ListField(
        child=serializers.CharField(), required=False, allow_null=True, min_length=1, help_text="null: all."
    )


class SampledReplicaOutput(serializers.Serializer[Any]):
    replica = serializers.CharField()
    note = serializers.CharField(allow_null=True, help_text="Why there is no recording.")
    samples = serializers.IntegerField()
    stacks = serializers.DictField(
        child=serializers.IntegerField(), help_text="Counts of folded stacks: thread;outermost function;...;innermost."
    )
    memory = serializers.ListField(
        child=serializers.DictField(), help_text="Processes: process, name, resident (bytes), objects, types."
    )


class FlameGraphOutput(serializers.Serializer[Any]):
    attempt = serializers.IntegerField()
    seconds = serializers.FloatField()
    replicas = SampledReplicaOutput(many=True)


class StacksView(APIView):
    @extend_schema(operation_id="jobs_stacks", request=None, responses=StacksOutput)
    def post(self, request: Request, job_id: UUID) -> Response:
        """Take the stacks of all threads of all running replicas at the same moment. Only for developers."""
        found = inspection.take_stacks(actor=signed_in(request.user), job_id=job_id)
        return Response(
            {
                "attempt": found.attempt,
                "spread_ms": found.spread_ms,
                "replicas": [{**asdict(one), "note": _note(one.note)} for one in found.replicas],
                "groups": [
                    {
                        "frames": [asdict(frame) for frame in group.frames],
                        "members": [{"replica": replica, "thread": thread} for replica, thread in group.members],
                        "roles": group.roles,
                    }
                    for group in found.groups
                ],
            }
        )


class FlameGraphView(APIView):
    @extend_schema(operation_id="jobs_flamegraph", request=FlameGraphInput, responses=FlameGraphOutput)
    def post(self, request: Request, job_id: UUID) -> Response:
        """Record where running replicas spend their time, and their objects by type. Only for developers.

        Answers when the recording is over.
        """
        found = inspection.record(actor=signed_in(request.user), job_id=job_id, wanted=request.data)
        recordings = [{**asdict(one), "note": _note(one.note)} for one in found.replicas]
        return Response({"attempt": found.attempt, "seconds": found.seconds, "replicas": recordings})


def _note(note: str) -> str | None:
    return localized(note) if note else None
