"""All routes. Each app has its own ``urls`` module; this module only mounts them."""

from __future__ import annotations

from django.urls import include, path
from drf_spectacular.views import SpectacularAPIView

from portal import health

urlpatterns = [
    # First: agents make most requests, and routes are tried in this order.
    path("ingest/v1/", include("jobs.ingest.urls")),
    path("healthz", health.alive, name="healthz"),
    path("readyz", health.ready, name="readyz"),
    path("", include("rbac.urls")),
    path("", include("quota.urls")),
    path("", include("datasets.urls")),
    path("", include("jobs.urls")),
    path("", include("portal.system.urls")),
    path("api/v1/", include("rbac.api.urls")),
    path("api/v1/", include("quota.api_urls")),
    path("api/v1/", include("datasets.api.urls")),
    path("api/v1/", include("jobs.api.urls")),
    path("api/schema", SpectacularAPIView.as_view(), name="schema"),
]

handler400 = "portal.common.problems.bad_request"
handler403 = "portal.common.problems.permission_denied"
handler404 = "portal.common.problems.page_not_found"
handler500 = "portal.common.problems.server_error"
