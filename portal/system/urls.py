"""Routes of the page *System* and of its API."""

from __future__ import annotations

from django.urls import path

from portal.system import api, views

urlpatterns = [
    path("admin/system", views.page, name="admin-system"),
    path("admin/system/now", views.now, name="admin-system-now"),
    path("admin/system/diagnostics", views.download_diagnostics, name="admin-system-diagnostics"),
    path("admin/system/e-mails/<int:failure_id>/send", views.send_email_again, name="admin-send-email-again"),
    path("api/v1/admin/system", api.SystemView.as_view(), name="api-admin-system"),
]
