from __future__ import annotations

from django.urls import path

from rbac import api

urlpatterns = [
    path("auth/token", api.AuthTokenView.as_view(), name="api-auth-token"),
    path("me", api.MeView.as_view(), name="api-me"),
    path("users", api.UsersView.as_view(), name="api-users"),
    path("namespaces", api.NamespacesView.as_view(), name="api-namespaces"),
    path("namespaces/<str:ns>/members", api.MembersView.as_view(), name="api-members"),
    path("namespaces/<str:ns>/members/<str:username>", api.MemberView.as_view(), name="api-member"),
    path("tokens", api.TokensView.as_view(), name="api-tokens"),
    path("tokens/<uuid:token_id>", api.TokenView.as_view(), name="api-token"),
]
