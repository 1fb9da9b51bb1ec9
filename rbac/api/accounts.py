"""API of sign-in for programs, the own account, accounts, and the caller's sessions."""

from __future__ import annotations

from typing import Any

from drf_spectacular.utils import extend_schema
from rest_framework import serializers, status
from rest_framework.permissions import AllowAny
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from portal.common.clock import now as wall_clock
from portal.common.pagination import PARAMETERS, paginate
from rbac import services, tokens
from rbac.access import account_of, require_admin, signed_in
from rbac.api import (
    openapi,  # noqa: F401  describes authentication in the API document; only processes that serve the API load it
)
from rbac.api.common import DONE, page_of, read
from rbac.models import Role, Session
from rbac.selectors import namespaces_of
from rbac.sign_in import cli_authorization, sign_in


class SignInInput(serializers.Serializer[Any]):
    username = serializers.CharField(max_length=150)
    password = serializers.CharField(max_length=1024, trim_whitespace=False)
    name = serializers.CharField(max_length=100, default="command line")
    code = serializers.CharField(
        max_length=32, default="", allow_blank=True, help_text="For an account with a second factor: a code of it."
    )


class ExchangeInput(serializers.Serializer[Any]):
    code = serializers.CharField(max_length=64)
    verifier = serializers.CharField(max_length=128)


class NewTokenOutput(serializers.Serializer[Any]):
    token = serializers.CharField(help_text="The secret, shown only once.")


class UserInput(serializers.Serializer[Any]):
    username = serializers.CharField(max_length=150)
    email = serializers.EmailField(allow_blank=True, default="")
    password = serializers.CharField(max_length=1024, trim_whitespace=False)


class RoleInNamespace(serializers.Serializer[Any]):
    name = serializers.CharField()
    role = serializers.ChoiceField(choices=Role.choices, allow_null=True)


class MeOutput(serializers.Serializer[Any]):
    username = serializers.CharField()
    is_admin = serializers.BooleanField()
    namespaces = RoleInNamespace(many=True)


class SessionOutput(serializers.Serializer[Any]):
    id = serializers.CharField(source="handle")
    address = serializers.CharField(allow_null=True)
    agent = serializers.CharField()
    created = serializers.DateTimeField()
    seen = serializers.DateTimeField()


class AuthTokenView(APIView):
    """Exchange a name and a password for a personal token."""

    # This view reads no session and no token: a stale one must not block it, nor a CSRF check.
    authentication_classes = ()
    permission_classes = (AllowAny,)

    @extend_schema(request=SignInInput, responses={201: NewTokenOutput})
    def post(self, request: Request) -> Response:
        body = read(SignInInput, request)
        user = sign_in.check_password(request._request, body["username"], body["password"])
        sign_in.require_second_factor(user, body["code"])
        _, secret = tokens.create_token(actor=user, name=body["name"])
        return Response({"token": secret}, status=status.HTTP_201_CREATED)


class ExchangeView(APIView):
    """Exchange the code of the page `/connect` for the token that was granted there."""

    authentication_classes = ()
    permission_classes = (AllowAny,)

    @extend_schema(request=ExchangeInput, responses={201: NewTokenOutput})
    def post(self, request: Request) -> Response:
        body = read(ExchangeInput, request)
        _, secret = cli_authorization.exchange(**body, now=wall_clock())
        return Response({"token": secret}, status=status.HTTP_201_CREATED)


class MeView(APIView):
    """The account of the caller, and its roles."""

    @extend_schema(responses=MeOutput)
    def get(self, request: Request) -> Response:
        actor = signed_in(request.user)
        memberships = [{"name": namespace.name, "role": namespace.role} for namespace in namespaces_of(actor)]  # type: ignore[attr-defined]
        return Response({"username": actor.username, "is_admin": actor.is_admin, "namespaces": memberships})


class UsersView(APIView):
    """Accounts, for admins."""

    @extend_schema(request=UserInput, responses={201: MeOutput})
    def post(self, request: Request) -> Response:
        require_admin(signed_in(request.user))
        user = services.create_user(actor=signed_in(request.user), **read(UserInput, request))
        body = {"username": user.username, "is_admin": user.is_admin, "namespaces": []}
        return Response(body, status=status.HTTP_201_CREATED)


class SessionsView(APIView):
    """The caller's signed-in browsers."""

    @extend_schema(parameters=[*PARAMETERS], responses=page_of(SessionOutput))
    def get(self, request: Request) -> Response:
        mine = sign_in.sessions_of(account_of(request.user))
        return Response(paginate(mine, request.query_params, order=("-seen", "handle"), render=_session))

    @extend_schema(operation_id="sessions_destroy_all", responses={204: DONE})
    def delete(self, request: Request) -> Response:
        """Sign out everywhere: all sessions end, and their sockets close. Tokens stay."""
        actor = account_of(request.user)
        sign_in.end_all_sessions(actor=actor, user=actor, request=request._request)
        return Response(status=status.HTTP_204_NO_CONTENT)


class SessionView(APIView):
    """One of the caller's sessions."""

    @extend_schema(responses={204: DONE})
    def delete(self, request: Request, handle: str) -> Response:
        sign_in.end_session(actor=account_of(request.user), handle=handle, request=request._request)
        return Response(status=status.HTTP_204_NO_CONTENT)


def _session(session: Session) -> dict[str, Any]:
    return dict(SessionOutput(session).data)
