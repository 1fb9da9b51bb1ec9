"""E-mails: their contents, their links, and their queue.

A request only writes a row (``OutgoingEmail``). So its duration does not depend on whether an address has an account,
and a mail server that hangs delays nobody. The sweep sends the e-mails (``rbac.emails.outbox``). Links with a secret
are made while an e-mail is sent and are not stored: a copy of the database opens none of them.

The text of each is a template whose first line is its subject.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from typing import Any

from django.conf import settings
from django.contrib.auth.tokens import default_token_generator
from django.core import signing
from django.core.mail import send_mail
from django.template.loader import render_to_string
from django.urls import reverse
from django.utils.http import urlsafe_base64_encode
from django.utils.translation import get_language

from portal.common.clock import now as wall_clock
from rbac.emails import failed_emails
from rbac.models import Awaiting, Invitation, OutgoingEmail, User
from rbac.namespaces import invitations
from rbac.namespaces.invitations import Invited

CONFIRMATION_SALT = "rbac.confirm"
_log = logging.getLogger(__name__)


# --- Queueing, in a request ------------------------------------------------------------------------------------------
def enqueue(origin: str, to: str, template: str, **context: Any) -> None:
    """Queue an e-mail, to be sent after the current transaction, in the active language.

    ``origin`` is the scheme and host of its links (``rbac.portal_origin``). ``context`` is JSON, and holds ids in place
    of secrets: ``_CONTEXTS`` makes the context of the template from it.
    """
    now = wall_clock()
    OutgoingEmail.objects.create(
        template=template,
        to=to,
        language=get_language() or settings.LANGUAGE_CODE,
        origin=origin,
        context=context,
        created=now,
        due=now,
    )


def send_invitation(origin: str, made: Invited) -> str:
    """Queue the link for the invited address, and return it. Empty for an account, which sees the invitation on a
    page."""
    if not made.secret:
        return ""
    enqueue(origin, made.invitation.email, "invitation", invitation=str(made.invitation.pk))
    return _link(origin, "invitation-link", secret=made.secret)


def try_out(to: str) -> str:
    """Send a test e-mail at once. Return why it could not be sent, or an empty text."""
    try:
        _send(to, "trial", {})
    except Exception as error:  # noqa: BLE001  whatever a mail server may raise
        _log.warning("The trial e-mail to %s could not be sent.", to, exc_info=True)
        failed_emails.record_trial(to, error, wall_clock())
        return str(error) or type(error).__name__
    return ""


# --- Delivery --------------------------------------------------------------------------------------------------------
def deliver(row: OutgoingEmail) -> None:
    """Send an e-mail now, unless its reason no longer holds. Raises whatever the mail server raises."""
    found = _CONTEXTS[row.template](row)
    if found is not None:
        to, context = found
        _send(to, row.template, context)


def _send(to: str, template: str, context: Mapping[str, Any]) -> None:
    subject, _, body = render_to_string(f"rbac/letters/{template}.txt", dict(context)).strip().partition("\n")
    send_mail(subject, body.strip() + "\n", settings.DEFAULT_FROM_EMAIL, [to])


Found = tuple[str, Mapping[str, Any]] | None


def _confirmation(row: OutgoingEmail) -> Found:
    user = User.objects.filter(pk=row.context["user"], email=row.to, awaiting=Awaiting.CONFIRMATION).first()
    if user is None:
        return None
    token = signing.dumps({"user": user.pk, "email": row.to}, salt=CONFIRMATION_SALT)
    return row.to, {"username": user.username, "link": _link(row.origin, "confirm", token=token)}


def _known(row: OutgoingEmail) -> Found:
    user = User.objects.filter(email__iexact=row.to).first()
    return (user.email, {"username": user.username, "link": _link(row.origin, "sign-in")}) if user else None


def _reset(row: OutgoingEmail) -> Found:
    user = User.objects.filter(email__iexact=row.to, is_active=True, service_of=None).first()
    return (user.email, {"username": user.username, "link": _password_link(row.origin, user)}) if user else None


def _welcome(row: OutgoingEmail) -> Found:
    user = User.objects.filter(pk=row.context["user"], is_active=True).first()
    if user is None:
        return None
    again = _link(row.origin, "reset-password")
    return row.to, {"username": user.username, "link": _password_link(row.origin, user), "again": again}


def _approved(row: OutgoingEmail) -> Found:
    return row.to, {"username": row.context["username"], "link": _link(row.origin, "sign-in")}


def _waiting(row: OutgoingEmail) -> Found:
    return row.to, {**row.context, "link": _link(row.origin, "waiting-accounts")}


def _invitation(row: OutgoingEmail) -> Found:
    rows = Invitation.objects.select_related("namespace", "invited_by")
    invitation = rows.filter(pk=row.context["invitation"], ended=None).first()
    if invitation is None:
        return None
    link = _link(row.origin, "invitation-link", secret=invitations.secret_of(invitation))
    return row.to, {"invitation": invitation, "link": link}


# The context of each template and the address that it is sent to; None when the reason no longer holds.
_CONTEXTS: Mapping[str, Callable[[OutgoingEmail], Found]] = {
    "approved": _approved,
    "confirmation": _confirmation,
    "invitation": _invitation,
    "known": _known,
    "reset": _reset,
    "waiting": _waiting,
    "welcome": _welcome,
}


def _password_link(origin: str, user: User) -> str:
    """Return a link that works once, within PASSWORD_RESET_TIMEOUT."""
    who = urlsafe_base64_encode(str(user.pk).encode())
    return _link(origin, "new-password", who=who, token=default_token_generator.make_token(user))


def _link(origin: str, page: str, **names: str) -> str:
    return f"{origin}{reverse(page, kwargs=names)}"
