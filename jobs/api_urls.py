from __future__ import annotations

from django.urls import path

from jobs import api

urlpatterns = [
    path("namespaces/<str:ns>/jobs", api.NamespaceJobsView.as_view(), name="api-jobs"),
    path("jobs/<uuid:job_id>", api.JobView.as_view(), name="api-job"),
    path("jobs/<uuid:job_id>/cancel", api.CancelView.as_view(), name="api-job-cancel"),
    path("jobs/<uuid:job_id>/retry", api.RetryView.as_view(), name="api-job-retry"),
    path("jobs/<uuid:job_id>/scale", api.ScaleView.as_view(), name="api-job-scale"),
    path("jobs/<uuid:job_id>/rehearse", api.RehearseView.as_view(), name="api-job-rehearse"),
    path("jobs/<uuid:job_id>/clone", api.CloneView.as_view(), name="api-job-clone"),
    path("jobs/<uuid:job_id>/events", api.EventsView.as_view(), name="api-job-events"),
    path("jobs/<uuid:job_id>/files", api.FilesView.as_view(), name="api-job-files"),
    path("jobs/<uuid:job_id>/artifacts", api.ArtifactsView.as_view(), name="api-job-artifacts"),
    path("jobs/<uuid:job_id>/artifacts/<path:name>", api.ArtifactView.as_view(), name="api-job-artifact"),
    path("examples", api.ExamplesView.as_view(), name="api-examples"),
]
