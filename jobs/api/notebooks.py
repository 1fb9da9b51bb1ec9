"""Views of the HTTP API of notebooks."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from drf_spectacular.utils import OpenApiParameter, extend_schema
from rest_framework import serializers, status
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from jobs.messages import specification as messages
from jobs.models import Notebook
from jobs.notebooks import selectors, services
from portal.common.errors import ValidationFailed
from portal.common.messages import localized
from portal.common.pagination import PARAMETERS, paginate
from rbac.access import namespace_for, signed_in
from rbac.scopes import Scope


class NotebookInput(serializers.Serializer[Any]):
    name = serializers.CharField(help_text="Lowercase letters, digits and hyphens.")
    cpu = serializers.CharField(required=False, help_text="Cores: 2 or 500m.")
    memory = serializers.CharField(required=False, help_text="Memory: 2Gi.")
    gpu = serializers.IntegerField(required=False)
    requirements = serializers.ListField(
        child=serializers.CharField(), required=False, help_text="Packages for pip, in addition to JupyterLab."
    )
    idle = serializers.CharField(required=False, help_text="Time without use until it is stopped: 30m; 0 for never.")
    source = serializers.DictField(  # type: ignore[assignment]  # also a name of the base class
        required=False,
        help_text="What it starts from: kind is empty, template (name), job (job), dataset (dataset) or git (address).",
    )


class NotebookChange(NotebookInput):
    name = serializers.CharField(required=False)
    source = None  # type: ignore[assignment]


class NotebookOutput(serializers.Serializer[Any]):
    id = serializers.UUIDField()
    name = serializers.CharField()
    namespace = serializers.CharField()
    owner = serializers.CharField()
    state = serializers.ChoiceField(choices=[(str(state), str(state)) for state in selectors.State])
    why = serializers.CharField(help_text="The message of its job.")
    url = serializers.CharField(help_text="Path of JupyterLab on the portal.")
    job = serializers.UUIDField(allow_null=True, help_text="Its present or last job.")
    cpu = serializers.FloatField()
    memory = serializers.CharField()
    gpu = serializers.IntegerField()
    requirements = serializers.ListField(child=serializers.CharField())
    source = serializers.DictField()  # type: ignore[assignment]  # see above
    busy = serializers.BooleanField(help_text="A cell runs or a terminal is busy.")
    idle_seconds = serializers.IntegerField(help_text="Time without use until it is stopped; 0: never.")
    stops_at = serializers.DateTimeField(allow_null=True, help_text="When it is stopped unless something runs.")
    created = serializers.DateTimeField()
    last_used = serializers.DateTimeField()


class NotebookPageOutput(serializers.Serializer[Any]):
    results = NotebookOutput(many=True)
    next = serializers.CharField(allow_null=True)


class NamespaceNotebooksView(APIView):
    """The notebooks of one namespace."""

    @extend_schema(operation_id="notebooks_list", parameters=[*PARAMETERS], responses=NotebookPageOutput)
    def get(self, request: Request, ns: str) -> Response:
        """List the notebooks of a namespace, the newest first."""
        namespace = namespace_for(request.user, ns, Scope.JOB_READ)
        rows = selectors.notebooks_in(request.user, namespace)
        return Response(paginate(rows, request.query_params, order=("-created", "-id"), render=_json))

    @extend_schema(
        operation_id="notebooks_create",
        parameters=[
            OpenApiParameter("Idempotency-Key", str, OpenApiParameter.HEADER, description="Makes it safe to repeat.")
        ],
        request=NotebookInput,
        responses={201: NotebookOutput, 200: NotebookOutput},
    )
    def post(self, request: Request, ns: str) -> Response:
        """Create a notebook and start it."""
        actor = signed_in(request.user)
        key = request.headers.get("Idempotency-Key")
        services.count_start(actor)
        made, created = services.create(actor=actor, namespace=ns, body=_body(request), idempotency_key=key)
        notebook = services.start(actor=actor, notebook_id=made.pk)
        return Response(_json(notebook), status=status.HTTP_201_CREATED if created else status.HTTP_200_OK)


class NotebookView(APIView):
    """One notebook."""

    @extend_schema(operation_id="notebooks_get", responses=NotebookOutput)
    def get(self, request: Request, notebook_id: UUID) -> Response:
        """Return a notebook."""
        return Response(_json(selectors.notebook_for(request.user, notebook_id, Scope.JOB_READ)))

    @extend_schema(operation_id="notebooks_change", request=NotebookChange, responses=NotebookOutput)
    def patch(self, request: Request, notebook_id: UUID) -> Response:
        """Change a notebook; while it runs, only its idle time."""
        actor = signed_in(request.user)
        return Response(_json(services.change(actor=actor, notebook_id=notebook_id, body=_body(request))))

    @extend_schema(operation_id="notebooks_delete", responses={204: None})
    def delete(self, request: Request, notebook_id: UUID) -> Response:
        """Delete a notebook that does not run. Its files stay in the home of the namespace."""
        services.delete(actor=signed_in(request.user), notebook_id=notebook_id)
        return Response(status=status.HTTP_204_NO_CONTENT)


class NotebookStartView(APIView):
    """The start of a notebook."""

    @extend_schema(operation_id="notebooks_start", request=None, responses=NotebookOutput)
    def post(self, request: Request, notebook_id: UUID) -> Response:
        """Start a notebook. Does nothing if it runs."""
        actor = signed_in(request.user)
        services.count_start(actor)
        return Response(_json(services.start(actor=actor, notebook_id=notebook_id)))


class NotebookStopView(APIView):
    """The end of a notebook's job."""

    @extend_schema(operation_id="notebooks_stop", request=None, responses=NotebookOutput)
    def post(self, request: Request, notebook_id: UUID) -> Response:
        """Stop a notebook. Its kernels end; its files stay."""
        return Response(_json(services.stop(actor=signed_in(request.user), notebook_id=notebook_id)))


def _body(request: Request) -> dict[str, Any]:
    if not isinstance(request.data, dict):
        raise ValidationFailed({"spec": [messages.NOT_A_MAPPING()]})
    return dict(request.data)


def _json(notebook: Notebook) -> dict[str, Any]:
    body = selectors.notebook_json(notebook)
    return {**body, "why": localized(body["why"])}
