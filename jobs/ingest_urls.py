from __future__ import annotations

from django.urls import path

from jobs import ingest

urlpatterns = [
    path("attempts/<uuid:attempt_id>/logs", ingest.logs),
    path("attempts/<uuid:attempt_id>/metrics", ingest.metrics),
    path("attempts/<uuid:attempt_id>/events", ingest.events),
    path("attempts/<uuid:attempt_id>/report", ingest.report),
    path("attempts/<uuid:attempt_id>/heartbeat", ingest.heartbeat),
    path("attempts/<uuid:attempt_id>/begin", ingest.begin),
    path("attempts/<uuid:attempt_id>/stop", ingest.stop),
    path("attempts/<uuid:attempt_id>/code", ingest.code),
    path("attempts/<uuid:attempt_id>/data", ingest.data),
    path("attempts/<uuid:attempt_id>/data/<path:path>", ingest.data_file),
    path("attempts/<uuid:attempt_id>/artifacts", ingest.artifacts),
]
