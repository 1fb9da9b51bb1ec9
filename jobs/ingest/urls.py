from __future__ import annotations

from django.urls import path

from jobs.ingest import views as ingest_views

urlpatterns = [
    path("attempts/<uuid:attempt_id>/logs", ingest_views.logs),
    path("attempts/<uuid:attempt_id>/metrics", ingest_views.metrics),
    path("attempts/<uuid:attempt_id>/events", ingest_views.events),
    path("attempts/<uuid:attempt_id>/report", ingest_views.report),
    path("attempts/<uuid:attempt_id>/heartbeat", ingest_views.heartbeat),
    path("attempts/<uuid:attempt_id>/begin", ingest_views.begin),
    path("attempts/<uuid:attempt_id>/stop", ingest_views.stop),
    path("attempts/<uuid:attempt_id>/code", ingest_views.code),
    path("attempts/<uuid:attempt_id>/data", ingest_views.data),
    path("attempts/<uuid:attempt_id>/data/<path:path>", ingest_views.data_file),
    path("attempts/<uuid:attempt_id>/artifacts", ingest_views.artifacts),
]
