"""API of tokens of accounts and service tokens of namespaces."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from drf_spectacular.utils import extend_schema
from rest_framework import serializers, status
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from portal.common.clock import now as wall_clock
from portal.common.errors import Conflict
from portal.common.pagination import PARAMETERS, paginate
from rbac import messages, tokens
from rbac.access import account_of, namespace_for, signed_in
from rbac.api.common import DONE, page_of, read
from rbac.models import ApiToken, Role
from rbac.scopes import OF_NAMESPACES, Scope
from rbac.selectors import service_tokens_of, tokens_of


class TokenInput(serializers.Serializer[Any]):
    name = serializers.CharField(max_length=100)
    scopes = serializers.ListField(
        child=serializers.ChoiceField(choices=[str(scope) for scope in Scope]),
        default=list,
        help_text="Without any: whatever the account may do.",
    )
    days = serializers.IntegerField(
        min_value=1, max_value=tokens.MAX_LIFETIME_DAYS, default=None, allow_null=True, help_text="null: for ever."
    )


class ServiceTokenInput(serializers.Serializer[Any]):
    name = serializers.CharField(max_length=63)
    role = serializers.ChoiceField(choices=[str(role) for role in tokens.SERVICE_ROLES])
    scopes = serializers.ListField(
        child=serializers.ChoiceField(choices=[str(scope) for scope in OF_NAMESPACES]),
        default=list,
        help_text="Without any: whatever the role may do.",
    )
    days = serializers.IntegerField(min_value=1, max_value=tokens.MAX_LIFETIME_DAYS, default=None, allow_null=True)


class TokenOutput(serializers.Serializer[Any]):
    id = serializers.UUIDField()
    name = serializers.CharField()
    scopes = serializers.ListField(child=serializers.CharField())
    created = serializers.DateTimeField()
    last_used = serializers.DateTimeField(allow_null=True)
    expires = serializers.DateTimeField(allow_null=True)


class ServiceTokenOutput(TokenOutput):
    username = serializers.CharField(source="user.username")
    created_by = serializers.CharField(source="created_by.username", allow_null=True, default=None)


class IssuedTokenOutput(TokenOutput):
    token = serializers.CharField(help_text="The secret, shown only once.")


class TokensView(APIView):
    """The caller's own tokens, without their secrets."""

    @extend_schema(parameters=[*PARAMETERS], responses=page_of(TokenOutput))
    def get(self, request: Request) -> Response:
        mine = tokens_of(account_of(request.user))
        return Response(paginate(mine, request.query_params, order=("-created", "-id"), render=_token))

    @extend_schema(request=TokenInput, responses={201: IssuedTokenOutput})
    def post(self, request: Request) -> Response:
        """Create a token. Its secret is in the response and is not stored."""
        actor = account_of(request.user)
        body = read(TokenInput, request)
        token, secret = tokens.create_token(
            actor=actor,
            name=body["name"],
            scopes=body["scopes"],
            expires=tokens.in_days(body["days"], wall_clock()),
        )
        return Response({**_token(token), "token": secret}, status=status.HTTP_201_CREATED)


class TokenView(APIView):
    """One of the caller's own tokens."""

    @extend_schema(responses={204: DONE})
    def delete(self, request: Request, token_id: UUID) -> Response:
        tokens.revoke_token(actor=account_of(request.user), token_id=str(token_id))
        return Response(status=status.HTTP_204_NO_CONTENT)


class CurrentTokenView(APIView):
    """The token that authenticates the request."""

    @extend_schema(operation_id="tokens_destroy_current", responses={204: DONE})
    def delete(self, request: Request) -> Response:
        """Revoke the token: this is its last request."""
        actor = account_of(request.user)
        shown = request.auth.pk if isinstance(request.auth, ApiToken) else ""
        if not shown:
            raise Conflict(messages.TOKEN_REQUIRED())
        tokens.revoke_token(actor=actor, token_id=str(shown))
        return Response(status=status.HTTP_204_NO_CONTENT)


class ServiceTokensView(APIView):
    """The service tokens of a namespace, for its owners."""

    @extend_schema(parameters=[*PARAMETERS], responses=page_of(ServiceTokenOutput))
    def get(self, request: Request, ns: str) -> Response:
        rows = service_tokens_of(namespace_for(request.user, ns, Scope.NAMESPACE_ADMIN))
        return Response(paginate(rows, request.query_params, order=("-created", "-id"), render=_service_token))

    @extend_schema(request=ServiceTokenInput, responses={201: IssuedTokenOutput})
    def post(self, request: Request, ns: str) -> Response:
        """Create a token for a program. It acts as ``<namespace>/<name>`` and cannot leave the namespace."""
        namespace_for(request.user, ns, Scope.NAMESPACE_ADMIN)
        body = read(ServiceTokenInput, request)
        token, secret = tokens.create_service_token(
            actor=signed_in(request.user),
            namespace_name=ns,
            name=body["name"],
            role=Role(body["role"]),
            scopes=body["scopes"],
            expires=tokens.in_days(body["days"], wall_clock()),
        )
        return Response({**_token(token), "token": secret}, status=status.HTTP_201_CREATED)


class ServiceTokenView(APIView):
    """One service token."""

    @extend_schema(responses={204: DONE})
    def delete(self, request: Request, ns: str, token_id: UUID) -> Response:
        tokens.revoke_service_token(actor=signed_in(request.user), namespace_name=ns, token_id=str(token_id))
        return Response(status=status.HTTP_204_NO_CONTENT)


def _token(token: ApiToken) -> dict[str, Any]:
    return dict(TokenOutput(token).data)


def _service_token(token: ApiToken) -> dict[str, Any]:
    return dict(ServiceTokenOutput(token).data)
