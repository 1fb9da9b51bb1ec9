"""Liveness (``/healthz``) and readiness (``/readyz``) of the portal, for supervisors and load balancers."""

from __future__ import annotations

from django.db import DatabaseError, connection
from django.http import HttpRequest, JsonResponse
from django.views.decorators.http import require_safe


@require_safe
def alive(request: HttpRequest) -> JsonResponse:
    """Report that the process answers."""
    return JsonResponse({"status": "ok"})


@require_safe
def ready(request: HttpRequest) -> JsonResponse:
    """Report that the process answers and reaches its database."""
    try:
        with connection.cursor() as cursor:
            cursor.execute("SELECT 1")
    except DatabaseError as error:
        return JsonResponse({"status": "unready", "why": f"The database does not answer: {error}."}, status=503)
    return JsonResponse({"status": "ok"})
