from __future__ import annotations

from django.urls import path

from quota import api

urlpatterns = [path("namespaces/<str:ns>/quota", api.QuotaView.as_view(), name="api-quota")]
