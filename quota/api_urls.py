from __future__ import annotations

from django.urls import path

from quota import api

urlpatterns = [
    path("namespaces/<str:ns>/quota", api.QuotaView.as_view(), name="api-quota"),
    path("namespaces/<str:ns>/quota/requests", api.QuotaRequestsView.as_view(), name="api-quota-requests"),
    path("namespaces/<str:ns>/usage", api.UsageView.as_view(), name="api-usage"),
    path("quota-requests", api.AllQuotaRequestsView.as_view(), name="api-all-quota-requests"),
    path("quota-requests/<int:wish_id>", api.QuotaRequestView.as_view(), name="api-quota-request"),
    path("capacity", api.CapacityView.as_view(), name="api-capacity"),
]
