from __future__ import annotations

from django.urls import path

from jobs import stream_api

urlpatterns = [
    path("jobs/<uuid:job_id>/metrics", stream_api.MetricsView.as_view(), name="job-metrics"),
    path("jobs/<uuid:job_id>/metrics/points", stream_api.PointsView.as_view(), name="job-points"),
    path("jobs/<uuid:job_id>/metrics.csv", stream_api.MetricsCsvView.as_view(), name="job-metrics-csv"),
    path("jobs/<uuid:job_id>/logs", stream_api.LogsView.as_view(), name="job-logs"),
    path("jobs/<uuid:job_id>/logs/download", stream_api.LogsDownloadView.as_view(), name="job-logs-download"),
]
