"""The page *System* as a document, in the reader's language: for the API and for the page."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from portal.common.messages import localized
from portal.system.overview import Overview
from portal.system.rules import Entry
from rbac.models import FailedEmail
from runtime.messages import Message

SHOWN_EMAILS = 50


def document(seen: Overview) -> dict[str, Any]:
    """Return the overview, with the last e-mails that failed."""
    return {
        "at": seen.at,
        "attention": seen.attention,
        "entries": [_entry(entry) for entry in seen.entries],
        "failed_emails": failed_emails(),
    }


def _entry(entry: Entry) -> dict[str, Any]:
    return {
        "section": entry.section,
        "name": entry.name,
        "status": entry.status.value,
        "code": entry.message.code if isinstance(entry.message, Message) else "",
        "message": localized(entry.message),
        "facts": _facts(entry.facts),
    }


def _facts(value: Any) -> Any:
    if isinstance(value, str):
        return localized(value)
    if isinstance(value, datetime):
        return value
    if isinstance(value, Mapping):
        return {name: _facts(item) for name, item in value.items()}
    return [_facts(item) for item in value] if isinstance(value, list | tuple) else value


def failed_emails() -> list[dict[str, Any]]:
    """Return the last e-mails whose sending failed, the newest first. ``state``: waiting, sent or given-up."""
    return [
        {
            "id": row.pk,
            "kind": row.template,
            "domain": row.domain,
            "first": row.first,
            "last": row.last,
            "tries": row.tries,
            "error": row.error,
            "state": _state(row),
            "next_try": row.next_try,
        }
        for row in FailedEmail.objects.order_by("-last", "-pk")[:SHOWN_EMAILS]
    ]


def _state(row: FailedEmail) -> str:
    if row.sent is not None:
        return "sent"
    return "waiting" if row.email_id is not None else "given-up"
