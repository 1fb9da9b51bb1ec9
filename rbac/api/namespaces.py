"""API of namespaces, their members and their invitations."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from drf_spectacular.utils import extend_schema
from rest_framework import serializers, status
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from portal.common.pagination import PARAMETERS, paginate
from rbac import services
from rbac.access import account_of, is_granted, namespace_for, require_admin, restrict, signed_in
from rbac.api.accounts import RoleInNamespace
from rbac.api.common import DONE, page_of, read
from rbac.emails import mail
from rbac.models import Invitation, Membership, Namespace, Role
from rbac.namespaces import invitations
from rbac.portal_origin import origin_of
from rbac.scopes import DESCRIPTIONS, OF_NAMESPACES, Scope
from rbac.selectors import abilities_in, members_of, user_named


# --- Shapes ----------------------------------------------------------------------------------------------------------
class NamespaceInput(serializers.Serializer[Any]):
    name = serializers.CharField(max_length=63)
    owner = serializers.CharField(max_length=150, required=False, help_text="An account; yourself without it.")


class ClosingInput(serializers.Serializer[Any]):
    name = serializers.CharField(max_length=63, help_text="The name of the namespace, once more.")


class MemberInput(serializers.Serializer[Any]):
    username = serializers.CharField(max_length=150)
    role = serializers.ChoiceField(choices=Role.choices, default=Role.DEVELOPER)


class HeirInput(serializers.Serializer[Any]):
    username = serializers.CharField(max_length=150)


class InvitationInput(serializers.Serializer[Any]):
    who = serializers.CharField(max_length=254, help_text="The name of an account, or an e-mail address.")
    role = serializers.ChoiceField(choices=Role.choices, default=Role.DEVELOPER)


class MemberOutput(serializers.Serializer[Any]):
    username = serializers.CharField()
    role = serializers.ChoiceField(choices=Role.choices)


class InvitationOutput(serializers.Serializer[Any]):
    id = serializers.UUIDField()
    namespace = serializers.CharField(source="namespace.name")
    username = serializers.CharField(source="user.username", default=None, allow_null=True)
    email = serializers.CharField()
    role = serializers.ChoiceField(choices=Role.choices)
    invited_by = serializers.CharField(source="invited_by.username")
    expires = serializers.DateTimeField()


class NewInvitationOutput(InvitationOutput):
    link = serializers.CharField(
        help_text="For an address: the link that was sent there, shown only once. Empty for an account."
    )


class AbilityOutput(serializers.Serializer[Any]):
    scope = serializers.ChoiceField(choices=[str(scope) for scope in OF_NAMESPACES])
    description = serializers.CharField()
    held = serializers.BooleanField()


class AbilitiesOutput(serializers.Serializer[Any]):
    role = serializers.ChoiceField(choices=Role.choices, allow_null=True)
    abilities = AbilityOutput(many=True)


# --- Namespaces ------------------------------------------------------------------------------------------------------
class NamespacesView(APIView):
    """The namespaces that the caller may see, each with the caller's role."""

    @extend_schema(parameters=[*PARAMETERS], responses=page_of(RoleInNamespace))
    def get(self, request: Request) -> Response:
        actor = signed_in(request.user)
        roles = dict(Membership.objects.filter(user=actor).values_list("namespace_id", "role"))
        seen = restrict(Namespace.objects.all(), actor, Scope.NAMESPACE_READ, path="pk")

        def render(namespace: Namespace) -> dict[str, Any]:
            return {"name": namespace.name, "role": roles.get(namespace.pk)}

        return Response(paginate(seen, request.query_params, order=("name",), render=render))

    @extend_schema(request=NamespaceInput, responses={201: RoleInNamespace})
    def post(self, request: Request) -> Response:
        require_admin(signed_in(request.user))
        body = read(NamespaceInput, request)
        owner = user_named(body["owner"]) if "owner" in body else signed_in(request.user)
        namespace = services.create_namespace(actor=signed_in(request.user), name=body["name"], owner=owner)
        role = Role.OWNER if owner == request.user else None
        return Response({"name": namespace.name, "role": role}, status=status.HTTP_201_CREATED)


class NamespaceView(APIView):
    """One namespace."""

    @extend_schema(responses={204: DONE})
    def delete(self, request: Request, ns: str) -> Response:
        """Close the namespace, once no job in it runs. Its name is never assigned again.

        The body repeats the name: `{"name": "team"}`.
        """
        actor = signed_in(request.user)
        namespace_for(actor, ns, Scope.NAMESPACE_ADMIN)
        confirmation = read(ClosingInput, request)["name"]
        services.close_namespace(actor=actor, namespace_name=ns, confirmation=confirmation)
        return Response(status=status.HTTP_204_NO_CONTENT)


class AbilitiesView(APIView):
    """The caller's abilities in a namespace, with the session or token of the request."""

    @extend_schema(responses=AbilitiesOutput)
    def get(self, request: Request, ns: str) -> Response:
        actor = signed_in(request.user)
        namespace = namespace_for(actor, ns, Scope.NAMESPACE_READ)
        role, held = abilities_in(namespace, actor)
        abilities = [
            {"scope": scope, "description": DESCRIPTIONS[scope], "held": scope in held and is_granted(actor, scope)}
            for scope in OF_NAMESPACES
        ]
        return Response({"role": role, "abilities": abilities})


class HandOverView(APIView):
    """The ownership of a namespace."""

    @extend_schema(request=HeirInput, responses={204: DONE})
    def post(self, request: Request, ns: str) -> Response:
        """Make another member the owner; the caller stays as a developer."""
        namespace_for(request.user, ns, Scope.NAMESPACE_ADMIN)
        username = read(HeirInput, request)["username"]
        actor = signed_in(request.user)
        services.hand_over(actor=actor, namespace_name=ns, username=username)
        return Response(status=status.HTTP_204_NO_CONTENT)


# --- Members ---------------------------------------------------------------------------------------------------------
class MembersView(APIView):
    """The members of a namespace, service tokens among them (``<namespace>/<name>``)."""

    @extend_schema(parameters=[*PARAMETERS], responses=page_of(MemberOutput))
    def get(self, request: Request, ns: str) -> Response:
        namespace = namespace_for(request.user, ns, Scope.NAMESPACE_READ)
        return Response(
            paginate(members_of(namespace), request.query_params, order=("user__username",), render=_member)
        )

    @extend_schema(request=MemberInput, responses={201: MemberOutput})
    def post(self, request: Request, ns: str) -> Response:
        """Add an account, or change its role."""
        namespace_for(request.user, ns, Scope.NAMESPACE_ADMIN)
        body = read(MemberInput, request)
        membership = services.set_member(
            actor=signed_in(request.user),
            namespace_name=ns,
            username=body["username"],
            role=Role(body["role"]),
        )
        return Response(_member(membership), status=status.HTTP_201_CREATED)


class MemberView(APIView):
    """One member of a namespace."""

    @extend_schema(responses={204: DONE})
    def delete(self, request: Request, ns: str, username: str) -> Response:
        services.remove_member(actor=signed_in(request.user), namespace_name=ns, username=username)
        return Response(status=status.HTTP_204_NO_CONTENT)


def _member(membership: Membership) -> dict[str, Any]:
    return {"username": membership.user.username, "role": membership.role}


# --- Invitations -----------------------------------------------------------------------------------------------------
class NamespaceInvitationsView(APIView):
    """The open invitations into a namespace, for its owners."""

    @extend_schema(parameters=[*PARAMETERS], responses=page_of(InvitationOutput))
    def get(self, request: Request, ns: str) -> Response:
        namespace = namespace_for(request.user, ns, Scope.NAMESPACE_ADMIN)
        return Response(_invitations(request, invitations.open_in(namespace)))

    @extend_schema(request=InvitationInput, responses={201: NewInvitationOutput})
    def post(self, request: Request, ns: str) -> Response:
        """Invite an account by its name, or the owner of an e-mail address. An invitation expires after a week."""
        namespace_for(request.user, ns, Scope.NAMESPACE_ADMIN)
        body = read(InvitationInput, request)
        actor = signed_in(request.user)
        made = invitations.invite(actor=actor, namespace_name=ns, invitee=body["who"], role=Role(body["role"]))
        link = mail.send_invitation(origin_of(request), made)
        return Response({**_invitation(made.invitation), "link": link}, status=status.HTTP_201_CREATED)


class NamespaceInvitationView(APIView):
    """One invitation into a namespace, for its owners."""

    @extend_schema(responses={204: DONE})
    def delete(self, request: Request, ns: str, invitation_id: UUID) -> Response:
        invitations.withdraw(
            actor=signed_in(request.user),
            namespace_name=ns,
            invitation_id=str(invitation_id),
        )
        return Response(status=status.HTTP_204_NO_CONTENT)


class InvitationsView(APIView):
    """The caller's open invitations."""

    @extend_schema(parameters=[*PARAMETERS], responses=page_of(InvitationOutput))
    def get(self, request: Request) -> Response:
        return Response(_invitations(request, invitations.open_for(account_of(request.user))))


class AcceptView(APIView):
    """Acceptance of an invitation."""

    @extend_schema(request=None, responses=RoleInNamespace)
    def post(self, request: Request, invitation_id: UUID) -> Response:
        actor = account_of(request.user)
        invitation = invitations.own(actor, str(invitation_id))
        namespace = invitations.accept(actor=actor, invitation=invitation)
        return Response({"name": namespace.name, "role": abilities_in(namespace, actor)[0]})


class DeclineView(APIView):
    """Refusal of an invitation."""

    @extend_schema(request=None, responses={204: DONE})
    def post(self, request: Request, invitation_id: UUID) -> Response:
        actor = account_of(request.user)
        invitation = invitations.own(actor, str(invitation_id))
        invitations.decline(actor=actor, invitation=invitation)
        return Response(status=status.HTTP_204_NO_CONTENT)


def _invitations(request: Request, rows: Any) -> Any:
    return paginate(rows, request.query_params, order=("-created", "-id"), render=_invitation)


def _invitation(invitation: Invitation) -> dict[str, Any]:
    return dict(InvitationOutput(invitation).data)
