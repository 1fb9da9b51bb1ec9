from __future__ import annotations

from django.urls import path

from jobs.ingest import views as ingest_views

urlpatterns = [
    path("attempts/<uuid:attempt_id>/logs", ingest_views.logs, name="ingest-logs"),
    path("attempts/<uuid:attempt_id>/metrics", ingest_views.metrics, name="ingest-metrics"),
    path("attempts/<uuid:attempt_id>/events", ingest_views.events, name="ingest-events"),
    path("attempts/<uuid:attempt_id>/report", ingest_views.report, name="ingest-report"),
    path("attempts/<uuid:attempt_id>/heartbeat", ingest_views.heartbeat, name="ingest-heartbeat"),
    path("attempts/<uuid:attempt_id>/begin", ingest_views.begin, name="ingest-begin"),
    path("attempts/<uuid:attempt_id>/stop", ingest_views.stop, name="ingest-stop"),
    path("attempts/<uuid:attempt_id>/code", ingest_views.code, name="ingest-code"),
    path("attempts/<uuid:attempt_id>/data", ingest_views.data, name="ingest-data"),
    path("attempts/<uuid:attempt_id>/data/<path:path>", ingest_views.data_file, name="ingest-data-file"),
    path("attempts/<uuid:attempt_id>/artifacts", ingest_views.artifacts, name="ingest-artifacts"),
]
