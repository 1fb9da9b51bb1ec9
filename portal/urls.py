"""All routes. Each room keeps its own; this file only says where they hang."""

from __future__ import annotations

from django.urls import include, path
from drf_spectacular.views import SpectacularAPIView

urlpatterns = [
    path("", include("rbac.urls")),
    path("", include("jobs.urls")),
    path("api/v1/", include("rbac.api_urls")),
    path("api/v1/", include("quota.api_urls")),
    path("api/v1/", include("datasets.api_urls")),
    path("api/v1/", include("jobs.api_urls")),
    path("api/v1/", include("jobs.stream_urls")),
    path("ingest/v1/", include("jobs.ingest_urls")),
    path("api/schema/", SpectacularAPIView.as_view(), name="schema"),
]
