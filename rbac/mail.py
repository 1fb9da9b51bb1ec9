"""Letters: to whom the portal writes by e-mail, and what. The text of each is a template whose first line is its
subject.

A letter is sent after the transaction has been committed. One that cannot be sent is a line in the log and not the
failure of the deed: whoever waits for it can ask for another one.
"""

from __future__ import annotations

import logging
from typing import Any

from django.conf import settings
from django.core.mail import send_mail
from django.db import transaction
from django.http import HttpRequest
from django.template.loader import render_to_string
from django.urls import reverse

from rbac.invitations import Invited

_log = logging.getLogger(__name__)


def send(to: str, letter: str, **context: Any) -> None:
    """Send a letter (the name of a template) to one address, in the language that is active now."""
    subject, _, body = render_to_string(f"rbac/letters/{letter}.txt", context).strip().partition("\n")
    transaction.on_commit(lambda: _deliver(to, subject, body.strip() + "\n"))


def _deliver(to: str, subject: str, body: str) -> None:
    try:
        send_mail(subject, body, settings.DEFAULT_FROM_EMAIL, [to])
    except Exception:  # noqa: BLE001  whatever a mail server may do
        _log.exception("A letter to %s could not be sent: %s", to, subject)


def send_invitation(request: HttpRequest, made: Invited) -> str:
    """Send the link to the address that was invited, and return it. Empty for an account, which sees it on a page."""
    if not made.secret:
        return ""
    link = request.build_absolute_uri(reverse("invitation-link", kwargs={"secret": made.secret}))
    send(made.invitation.email, "invitation", link=link, invitation=made.invitation)
    return link
