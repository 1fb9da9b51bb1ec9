"""Accounts, namespaces, members and tokens over HTTP."""

from __future__ import annotations

from typing import Any

from drf_spectacular.utils import OpenApiResponse, extend_schema, inline_serializer
from rest_framework import serializers, status
from rest_framework.permissions import AllowAny
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from portal.common.paging import paginate
from rbac import (
    schema,  # noqa: F401  tells the API document how callers authenticate; only who serves the API loads it
    services,
)
from rbac.access import namespace_for, restrict, signed_in
from rbac.models import ApiToken, Membership, Namespace, Role
from rbac.scopes import Scope
from rbac.selectors import members_of, namespaces_of, tokens_of, user_named

_GONE = OpenApiResponse(description="Done; nothing to tell.")


# --- Shapes ----------------------------------------------------------------------------------------------------------
class SignInInput(serializers.Serializer[Any]):
    username = serializers.CharField(max_length=150)
    password = serializers.CharField(max_length=1024, trim_whitespace=False)
    name = serializers.CharField(max_length=100, default="command line")


class UserInput(serializers.Serializer[Any]):
    username = serializers.CharField(max_length=150)
    email = serializers.EmailField(allow_blank=True, default="")
    password = serializers.CharField(max_length=1024, trim_whitespace=False)


class NamespaceInput(serializers.Serializer[Any]):
    name = serializers.CharField(max_length=63)
    owner = serializers.CharField(max_length=150, required=False, help_text="An account; yourself without it.")


class MemberInput(serializers.Serializer[Any]):
    username = serializers.CharField(max_length=150)
    role = serializers.ChoiceField(choices=Role.choices, default=Role.DEVELOPER)


class RoleInNamespace(serializers.Serializer[Any]):
    name = serializers.CharField()
    role = serializers.ChoiceField(choices=Role.choices, allow_null=True)


class MeOutput(serializers.Serializer[Any]):
    username = serializers.CharField()
    is_admin = serializers.BooleanField()
    namespaces = RoleInNamespace(many=True)


class MemberOutput(serializers.Serializer[Any]):
    username = serializers.CharField()
    role = serializers.ChoiceField(choices=Role.choices)


class TokenOutput(serializers.Serializer[Any]):
    id = serializers.UUIDField()
    name = serializers.CharField()
    created = serializers.DateTimeField()
    last_used = serializers.DateTimeField(allow_null=True)
    expires = serializers.DateTimeField(allow_null=True)


def _page_of(output: type[serializers.Serializer[Any]]) -> Any:
    """The shape of a page of these, for the API document."""
    fields = {"results": output(many=True), "next": serializers.CharField(allow_null=True)}
    return inline_serializer(f"{output.__name__.removesuffix('Output')}Page", fields)


def _read(shape: type[serializers.Serializer[Any]], request: Request) -> dict[str, Any]:
    """The request's body, checked. Raises the framework's ValidationError."""
    body = shape(data=request.data)
    body.is_valid(raise_exception=True)
    checked: dict[str, Any] = body.validated_data
    return checked


# --- Who am I --------------------------------------------------------------------------------------------------------
class AuthTokenView(APIView):
    """Trade a name and a password for a personal token."""

    # No session and no token is read here: a stale one must not stand in the way, nor a CSRF check.
    authentication_classes = ()
    permission_classes = (AllowAny,)

    @extend_schema(
        request=SignInInput, responses={201: inline_serializer("NewToken", {"token": serializers.CharField()})}
    )
    def post(self, request: Request) -> Response:
        body = _read(SignInInput, request)
        user = services.check_password(request._request, body["username"], body["password"])
        _, secret = services.create_token(actor=user, name=body["name"], request=request._request)
        return Response({"token": secret}, status=status.HTTP_201_CREATED)


class MeView(APIView):
    """The account behind the request, and its roles."""

    @extend_schema(responses=MeOutput)
    def get(self, request: Request) -> Response:
        actor = signed_in(request.user)
        rooms = [{"name": room.name, "role": room.role} for room in namespaces_of(actor)]  # type: ignore[attr-defined]
        return Response({"username": actor.username, "is_admin": actor.is_admin, "namespaces": rooms})


class UsersView(APIView):
    """Accounts, for admins."""

    @extend_schema(request=UserInput, responses={201: MeOutput})
    def post(self, request: Request) -> Response:
        services.require_admin(signed_in(request.user))
        user = services.create_user(
            actor=signed_in(request.user), request=request._request, **_read(UserInput, request)
        )
        body = {"username": user.username, "is_admin": user.is_admin, "namespaces": []}
        return Response(body, status=status.HTTP_201_CREATED)


# --- Namespaces and members ------------------------------------------------------------------------------------------
class NamespacesView(APIView):
    """The namespaces that the caller may see, each with the caller's role."""

    @extend_schema(responses=_page_of(RoleInNamespace))
    def get(self, request: Request) -> Response:
        actor = signed_in(request.user)
        roles = dict(Membership.objects.filter(user=actor).values_list("namespace_id", "role"))
        seen = restrict(Namespace.objects.all(), actor, Scope.NAMESPACE_READ, path="pk")

        def render(room: Namespace) -> dict[str, Any]:
            return {"name": room.name, "role": roles.get(room.pk)}

        return Response(paginate(seen, request.query_params, order=("name",), render=render))

    @extend_schema(request=NamespaceInput, responses={201: RoleInNamespace})
    def post(self, request: Request) -> Response:
        services.require_admin(signed_in(request.user))
        body = _read(NamespaceInput, request)
        owner = user_named(body["owner"]) if "owner" in body else signed_in(request.user)
        room = services.create_namespace(
            actor=signed_in(request.user), name=body["name"], owner=owner, request=request._request
        )
        role = Role.OWNER if owner == request.user else None
        return Response({"name": room.name, "role": role}, status=status.HTTP_201_CREATED)


class MembersView(APIView):
    """The members of a namespace."""

    @extend_schema(responses=_page_of(MemberOutput))
    def get(self, request: Request, ns: str) -> Response:
        namespace = namespace_for(request.user, ns, Scope.NAMESPACE_READ)
        return Response(
            paginate(members_of(namespace), request.query_params, order=("user__username",), render=_member)
        )

    @extend_schema(request=MemberInput, responses={201: MemberOutput})
    def post(self, request: Request, ns: str) -> Response:
        """Add an account, or change its role."""
        namespace_for(request.user, ns, Scope.NAMESPACE_ADMIN)
        body = _read(MemberInput, request)
        membership = services.set_member(
            actor=signed_in(request.user),
            namespace_name=ns,
            username=body["username"],
            role=Role(body["role"]),
            request=request._request,
        )
        return Response(_member(membership), status=status.HTTP_201_CREATED)


class MemberView(APIView):
    """One member of a namespace."""

    @extend_schema(responses={204: _GONE})
    def delete(self, request: Request, ns: str, username: str) -> Response:
        services.remove_member(
            actor=signed_in(request.user), namespace_name=ns, username=username, request=request._request
        )
        return Response(status=status.HTTP_204_NO_CONTENT)


def _member(membership: Membership) -> dict[str, Any]:
    return {"username": membership.user.username, "role": membership.role}


# --- Tokens ----------------------------------------------------------------------------------------------------------
class TokensView(APIView):
    """The caller's own tokens, without their secrets."""

    @extend_schema(responses=_page_of(TokenOutput))
    def get(self, request: Request) -> Response:
        mine = tokens_of(signed_in(request.user))
        return Response(paginate(mine, request.query_params, order=("-created", "-id"), render=_token))


class TokenView(APIView):
    """One of the caller's own tokens."""

    @extend_schema(responses={204: _GONE})
    def delete(self, request: Request, token_id: str) -> Response:
        services.revoke_token(actor=signed_in(request.user), token_id=str(token_id), request=request._request)
        return Response(status=status.HTTP_204_NO_CONTENT)


def _token(token: ApiToken) -> dict[str, Any]:
    return dict(TokenOutput(token).data)
