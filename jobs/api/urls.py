from __future__ import annotations

from django.urls import path

from jobs.api import holding as holding_api
from jobs.api import inspection as inspection_api
from jobs.api import jobs as job_api
from jobs.api import notebooks as notebook_api
from jobs.api import recordings as recording_api
from jobs.api import streams as stream_api

urlpatterns = [
    path("namespaces/<str:ns>/jobs", job_api.NamespaceJobsView.as_view(), name="api-jobs"),
    path("jobs/<uuid:job_id>", job_api.JobView.as_view(), name="api-job"),
    path("jobs/<uuid:job_id>/cancel", job_api.CancelView.as_view(), name="api-job-cancel"),
    path("jobs/<uuid:job_id>/retry", job_api.RetryView.as_view(), name="api-job-retry"),
    path("jobs/<uuid:job_id>/scale", job_api.ScaleView.as_view(), name="api-job-scale"),
    path("jobs/<uuid:job_id>/rehearse", job_api.RehearseView.as_view(), name="api-job-rehearse"),
    path("jobs/<uuid:job_id>/stacks", inspection_api.StacksView.as_view(), name="api-job-stacks"),
    path("jobs/<uuid:job_id>/flamegraph", inspection_api.FlameGraphView.as_view(), name="api-job-flamegraph"),
    path("jobs/<uuid:job_id>/hold", holding_api.HoldView.as_view(), name="api-job-hold"),
    path("jobs/<uuid:job_id>/release", holding_api.ReleaseView.as_view(), name="api-job-release"),
    path("jobs/<uuid:job_id>/variables", holding_api.VariablesView.as_view(), name="api-job-variables"),
    path("jobs/<uuid:job_id>/pause", job_api.PauseView.as_view(), name="api-job-pause"),
    path("jobs/<uuid:job_id>/resume", job_api.ResumeView.as_view(), name="api-job-resume"),
    path("jobs/<uuid:job_id>/clone", job_api.CloneView.as_view(), name="api-job-clone"),
    path("jobs/<uuid:job_id>/events", job_api.EventsView.as_view(), name="api-job-events"),
    path("jobs/<uuid:job_id>/files", job_api.FilesView.as_view(), name="api-job-files"),
    path("jobs/<uuid:job_id>/artifacts", job_api.ArtifactsView.as_view(), name="api-job-artifacts"),
    path("jobs/<uuid:job_id>/artifacts/<path:name>", job_api.ArtifactView.as_view(), name="api-job-artifact"),
    path("jobs/<uuid:job_id>/recordings", recording_api.RecordingsView.as_view(), name="api-job-recordings"),
    path(
        "jobs/<uuid:job_id>/recordings/<uuid:recording_id>",
        recording_api.RecordingView.as_view(),
        name="api-job-recording",
    ),
    path("jobs/<uuid:job_id>/metrics", stream_api.MetricsView.as_view(), name="job-metrics"),
    path("jobs/<uuid:job_id>/metrics/points", stream_api.PointsView.as_view(), name="job-points"),
    path("jobs/<uuid:job_id>/metrics.csv", stream_api.MetricsCsvView.as_view(), name="job-metrics-csv"),
    path("jobs/<uuid:job_id>/logs", stream_api.LogsView.as_view(), name="job-logs"),
    path("jobs/<uuid:job_id>/logs/download", stream_api.LogsDownloadView.as_view(), name="job-logs-download"),
    path("namespaces/<str:ns>/notebooks", notebook_api.NamespaceNotebooksView.as_view(), name="api-notebooks"),
    path("notebooks/<uuid:notebook_id>", notebook_api.NotebookView.as_view(), name="api-notebook"),
    path("notebooks/<uuid:notebook_id>/start", notebook_api.NotebookStartView.as_view(), name="api-notebook-start"),
    path("notebooks/<uuid:notebook_id>/stop", notebook_api.NotebookStopView.as_view(), name="api-notebook-stop"),
    path("examples", job_api.ExamplesView.as_view(), name="api-examples"),
]
