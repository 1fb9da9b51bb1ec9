"""Liveness (``/healthz``) and readiness (``/readyz``) of the portal, for supervisors and load balancers."""

from __future__ import annotations

import logging
import time

from django.conf import settings
from django.db import DatabaseError, InterfaceError, connection
from django.http import HttpRequest, JsonResponse
from django.views.decorators.http import require_safe

from portal import readiness
from portal.common import outages
from portal.common.messages import localized
from portal.common.messages import requests as messages
from portal.common.postgresql import pool

_log = logging.getLogger(__name__)
# Since when this process has missed its database.
_missed: float | None = readiness.NEVER


@require_safe
def alive(request: HttpRequest) -> JsonResponse:
    """Report that the process answers."""
    return JsonResponse({"status": "ok"})


@require_safe
def ready(request: HttpRequest) -> JsonResponse:
    """Report that the process answers and reaches its database, or has missed it for less than READY_SECONDS."""
    global _missed
    answers, now = _database_answers(), time.monotonic()
    _missed = readiness.lost_since(_missed, answers, now)
    if answers:
        return JsonResponse({"status": "ok"})
    report = {"missing": ["database"], "why": localized(messages.DATABASE_MISSING())}
    if readiness.ready(_missed, now, settings.READY_SECONDS):
        return JsonResponse({"status": "ok", **report})
    return JsonResponse({"status": "unready", **report}, status=503)


def _database_answers() -> bool:
    """Query the database. The driver's error names servers and accounts, so it is logged and not sent.

    While all connections are in use the database answers others, and a probe does not wait as long as a request.
    """
    if pool.is_full():
        return True
    try:
        with connection.cursor() as cursor:
            cursor.execute("SELECT 1")
    except (DatabaseError, InterfaceError) as error:
        _log.warning("The database does not answer: %s", " ".join(str(error).split()))
        outages.close_lost()
        return False
    return True
