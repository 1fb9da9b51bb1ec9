"""The pages of a namespace about people: members, invitations, abilities, closing."""

from __future__ import annotations

from uuid import UUID

from django.contrib.auth.decorators import login_required
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.utils.translation import gettext
from django.utils.translation import gettext_noop as _
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_http_methods, require_POST, require_safe

from portal.common.errors import ValidationFailed
from rbac import messages, services
from rbac.access import may
from rbac.emails import mail
from rbac.models import Invitation, Role
from rbac.namespaces import invitations
from rbac.portal_origin import origin_of
from rbac.scopes import DESCRIPTIONS, OF_NAMESPACES, SCOPES_OF_ROLE, Scope
from rbac.selectors import abilities_in, people_of
from rbac.view_helpers import attempt, enter, user_of


@never_cache
@require_safe
@login_required
def members(request: HttpRequest, ns: str) -> HttpResponse:
    """The members of the namespace; its owners can change them."""
    return _members(request, ns)


def _members(request: HttpRequest, ns: str, link: str = "") -> HttpResponse:
    """``link``: of an invitation that has just been made, shown only this once."""
    namespace = enter(request, ns, Scope.NAMESPACE_READ)
    may_change = may(request.user, Scope.NAMESPACE_ADMIN, namespace)
    context = {
        "namespace": namespace,
        "members": people_of(namespace),
        "invitations": invitations.open_in(namespace) if may_change else [],
        "may_change": may_change,
        "roles": Role.values,
        "own_role": abilities_in(namespace, user_of(request))[0],
        "link": link,
    }
    return render(request, "rbac/members.html", context)


@login_required
@require_POST
def change_role(request: HttpRequest, ns: str, username: str) -> HttpResponse:
    """Change the role of a member."""

    def action() -> None:
        services.set_member(actor=user_of(request), namespace_name=ns, username=username, role=_role(request))

    attempt(request, action, _("The role has been changed."))
    return redirect("members", ns=ns)


def _role(request: HttpRequest) -> Role:
    """Return the role of the form. Raises ValidationFailed."""
    try:
        return Role(request.POST.get("role", ""))
    except ValueError:
        raise ValidationFailed({"role": [messages.ROLE_MISSING()]}) from None


@login_required
@require_POST
def remove_member(request: HttpRequest, ns: str, username: str) -> HttpResponse:
    """Remove a member; the own account to leave."""
    leaving = username == user_of(request).username

    def action() -> None:
        services.remove_member(actor=user_of(request), namespace_name=ns, username=username)

    done = _("You have left the namespace.") if leaving else _("The member has been removed.")
    left = attempt(request, action, done) and leaving
    return redirect("home") if left and not user_of(request).is_admin else redirect("members", ns=ns)


@login_required
@require_POST
def record_terminals(request: HttpRequest, ns: str) -> HttpResponse:
    """Begin or stop to record the terminals of the namespace's jobs."""
    record = request.POST.get("record") == "1"

    def action() -> None:
        services.set_terminal_recording(actor=user_of(request), namespace_name=ns, record=record)

    attempt(request, action, _("Terminals are recorded from now on.") if record else _("Terminals are not recorded."))
    return redirect("members", ns=ns)


@login_required
@require_POST
def hand_over(request: HttpRequest, ns: str, username: str) -> HttpResponse:
    """Make another member the owner in place of the actor."""

    def action() -> None:
        services.hand_over(actor=user_of(request), namespace_name=ns, username=username)

    attempt(request, action, _("The namespace has been handed over. You are a developer in it now."))
    return redirect("members", ns=ns)


@login_required
@require_POST
def close(request: HttpRequest, ns: str) -> HttpResponse:
    """Close the namespace; the form repeats its name as a confirmation."""
    enter(request, ns, Scope.NAMESPACE_ADMIN)

    def action() -> None:
        confirmation = request.POST.get("name", "")
        services.close_namespace(actor=user_of(request), namespace_name=ns, confirmation=confirmation)

    closed = attempt(request, action, _("The namespace has been closed."))
    return redirect("home") if closed else redirect("members", ns=ns)


@require_safe
@login_required
def abilities(request: HttpRequest, ns: str) -> HttpResponse:
    """The caller's abilities here, and those of other roles."""
    namespace = enter(request, ns, Scope.NAMESPACE_READ)
    role, held = abilities_in(namespace, user_of(request))
    rows = [
        {
            "scope": scope,
            "text": gettext(DESCRIPTIONS[scope]),
            "held": scope in held,
            "roles": [scope in SCOPES_OF_ROLE[each] for each in Role.values],
        }
        for scope in OF_NAMESPACES
    ]
    context = {"namespace": namespace, "own_role": role, "roles": Role.values, "rows": rows}
    return render(request, "rbac/abilities.html", context)


# --- Invitations -----------------------------------------------------------------------------------------------------
@login_required
@require_POST
def invite(request: HttpRequest, ns: str) -> HttpResponse:
    """Invite by name or by address. The link for an address is shown only in this response."""
    links: list[str] = []

    def action() -> None:
        made = invitations.invite(
            actor=user_of(request),
            namespace_name=ns,
            invitee=request.POST.get("who", ""),
            role=_role(request),
        )
        links.append(mail.send_invitation(origin_of(request), made))

    attempt(request, action, _("The invitation has been made."))
    return _members(request, ns, links[0]) if links and links[0] else redirect("members", ns=ns)


@login_required
@require_POST
def withdraw_invitation(request: HttpRequest, ns: str, invitation_id: UUID) -> HttpResponse:
    """Withdraw an invitation."""

    def action() -> None:
        invitations.withdraw(actor=user_of(request), namespace_name=ns, invitation_id=str(invitation_id))

    attempt(request, action, _("The invitation has been withdrawn."))
    return redirect("members", ns=ns)


@never_cache
@require_safe
@login_required
def own_invitations(request: HttpRequest) -> HttpResponse:
    """The account's invitations."""
    return render(request, "rbac/invitations.html", {"invitations": invitations.open_for(user_of(request))})


@login_required
@require_POST
def answer_invitation(request: HttpRequest, invitation_id: UUID, answer: str) -> HttpResponse:
    """Accept or decline an invitation of the account."""
    user = user_of(request)
    invitation = invitations.own(user, str(invitation_id))
    if answer == "decline":
        attempt(
            request,
            lambda: invitations.decline(actor=user, invitation=invitation),
            _("The invitation has been declined."),
        )
        return redirect("own-invitations")
    return _accept(request, invitation)


@never_cache
@require_http_methods(["GET", "HEAD", "POST"])
@login_required
def invitation_link(request: HttpRequest, secret: str) -> HttpResponse:
    """The page of a link in an e-mail: inviter, namespace and role, with a button."""
    invitation = invitations.behind_link(secret)
    if request.method == "POST":
        return _accept(request, invitation)
    return render(request, "rbac/invitation.html", {"invitation": invitation, "secret": secret})


def _accept(request: HttpRequest, invitation: Invitation) -> HttpResponse:
    user = user_of(request)
    name = invitation.namespace.name
    if attempt(
        request,
        lambda: invitations.accept(actor=user, invitation=invitation),
        _("Welcome: you are a member now."),
    ):
        return redirect("jobs", ns=name)
    return redirect("own-invitations")
