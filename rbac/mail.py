"""Letters: to whom the portal writes by e-mail, and what. The text of each is a template whose first line is its
subject.

A letter is sent after the transaction has been committed. One that cannot be sent is a line in the log and not the
failure of the deed: whoever waits for it can ask for another one.
"""

from __future__ import annotations

import logging
from typing import Any
from urllib.parse import urlsplit

from django.conf import settings
from django.core.mail import send_mail
from django.db import transaction
from django.http import HttpRequest
from django.http.request import split_domain_port
from django.template.loader import render_to_string
from django.urls import reverse

from rbac.invitations import Invited

_log = logging.getLogger(__name__)


def send(to: str, letter: str, **context: Any) -> None:
    """Send a letter (the name of a template) to one address, in the language that is active now."""
    subject, _, body = render_to_string(f"rbac/letters/{letter}.txt", context).strip().partition("\n")
    transaction.on_commit(lambda: _deliver(to, subject, body.strip() + "\n"))


def try_out(to: str) -> str:
    """Send a letter at once to see whether letters arrive; why it could not be sent, or nothing."""
    subject, _, body = render_to_string("rbac/letters/trial.txt").strip().partition("\n")
    try:
        send_mail(subject, body.strip() + "\n", settings.DEFAULT_FROM_EMAIL, [to])
    except Exception as error:  # noqa: BLE001  whatever a mail server may do
        _log.warning("The trial letter to %s could not be sent.", to, exc_info=True)
        return str(error) or type(error).__name__
    return ""


def _deliver(to: str, subject: str, body: str) -> None:
    try:
        send_mail(subject, body, settings.DEFAULT_FROM_EMAIL, [to])
    except Exception:  # noqa: BLE001  whatever a mail server may do
        _log.exception("A letter to %s could not be sent: %s", to, subject)


def link(request: HttpRequest, page: str, **names: str) -> str:
    """The whole address of a page, for a letter.

    The host is the one that was asked for, of which Django has made sure that it is ours. Its port is not looked at by
    Django: one that is none of ours could be that of a program which somebody runs on the same machine.
    """
    host, port = split_domain_port(request.get_host())
    if port not in _ports_of(host):
        port = "" if settings.HTTPS else str(settings.PORT)
    return f"{request.scheme}://{host}{':' if port else ''}{port}{reverse(page, kwargs=names)}"


def _ports_of(host: str) -> set[str]:
    """The ports of the portal's own addresses under this name."""
    origins = [urlsplit(origin) for origin in settings.CSRF_TRUSTED_ORIGINS]
    return {"", "80", "443", str(settings.PORT), *(str(each.port) for each in origins if each.hostname == host)}


def send_invitation(request: HttpRequest, made: Invited) -> str:
    """Send the link to the address that was invited, and return it. Empty for an account, which sees it on a page."""
    if not made.secret:
        return ""
    address = link(request, "invitation-link", secret=made.secret)
    send(made.invitation.email, "invitation", link=address, invitation=made.invitation)
    return address
