"""API of the page *System*, for admins."""

from __future__ import annotations

from typing import Any

from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from portal.system.document import document
from portal.system.overview import overview
from portal.system.rules import Status
from rbac.access import require_admin, signed_in

SECTIONS = ("components", "tasks", "servers", "disk", "queue", "streams", "expiry", "mail")


class SystemEntryOutput(serializers.Serializer[Any]):
    section = serializers.ChoiceField(choices=SECTIONS)
    name = serializers.CharField()
    status = serializers.ChoiceField(choices=[(status.value, status.value) for status in Status])
    code = serializers.CharField(help_text="The code of the message, stable for programs.")
    message = serializers.CharField(help_text="What is so, and what to do.")
    facts = serializers.DictField(help_text="The observed values; which ones depends on the entry.")


class FailedEmailOutput(serializers.Serializer[Any]):
    id = serializers.IntegerField()
    kind = serializers.CharField(help_text="The template of the e-mail.")
    domain = serializers.CharField(help_text="The part of the recipient's address after the @.")
    first = serializers.DateTimeField()
    last = serializers.DateTimeField()
    tries = serializers.IntegerField()
    error = serializers.CharField(help_text="The class of the error, with the mail server's status.")
    state = serializers.ChoiceField(choices=("waiting", "sent", "given-up"))
    next_try = serializers.DateTimeField(allow_null=True)


class SystemOutput(serializers.Serializer[Any]):
    at = serializers.DateTimeField(help_text="When the entries were observed; at most a few seconds ago.")
    attention = serializers.IntegerField(help_text="Number of entries with the status warning or failed.")
    entries = SystemEntryOutput(many=True)
    failed_emails = FailedEmailOutput(many=True)


class SystemView(APIView):
    """State of the installation, for admins: components, servers, disk, queue, streams, expiry dates and e-mail."""

    @extend_schema(operation_id="admin_system_retrieve", responses=SystemOutput)
    def get(self, request: Request) -> Response:
        require_admin(signed_in(request.user))
        return Response(document(overview()))
