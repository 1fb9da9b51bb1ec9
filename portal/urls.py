"""All routes. Each room keeps its own; this file only says where they hang."""

from __future__ import annotations

from django.urls import include, path
from drf_spectacular.views import SpectacularAPIView

from portal import health

urlpatterns = [
    path("healthz", health.alive, name="healthz"),
    path("readyz", health.ready, name="readyz"),
    path("", include("rbac.urls")),
    path("", include("quota.urls")),
    path("", include("datasets.urls")),
    path("", include("jobs.urls")),
    path("api/v1/", include("rbac.api_urls")),
    path("api/v1/", include("quota.api_urls")),
    path("api/v1/", include("datasets.api_urls")),
    path("api/v1/", include("jobs.api_urls")),
    path("api/v1/", include("jobs.stream_urls")),
    path("ingest/v1/", include("jobs.ingest_urls")),
    path("api/schema", SpectacularAPIView.as_view(), name="schema"),
]

handler400 = "portal.common.http.bad_request"
handler403 = "portal.common.http.permission_denied"
handler404 = "portal.common.http.page_not_found"
handler500 = "portal.common.http.server_error"
