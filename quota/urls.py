from __future__ import annotations

from django.urls import path

from quota import admin_views, views

urlpatterns = [
    path("n/<str:ns>/quota", views.page, name="quota"),
    path("n/<str:ns>/quota/requests", views.ask, name="ask-quota"),
    path("n/<str:ns>/quota/requests/<int:wish_id>/withdraw", views.withdraw, name="withdraw-quota-request"),
    path("admin/quotas", admin_views.overview, name="admin-quotas"),
    path("admin/quotas/capacity", admin_views.set_capacity, name="admin-capacity"),
    path("admin/quotas/requests", admin_views.quota_requests, name="admin-quota-requests"),
    path("admin/quotas/requests/<int:wish_id>", admin_views.answer, name="answer-quota-request"),
    path("admin/quotas/of/<str:ns>", admin_views.namespace, name="admin-quota"),
    path("admin/quotas/of/<str:ns>/limits", admin_views.set_limits, name="admin-limits"),
]
