from __future__ import annotations

from django.urls import path

from rbac.api import accounts, namespaces, tokens

urlpatterns = [
    path("auth/token", accounts.AuthTokenView.as_view(), name="api-auth-token"),
    path("auth/exchange", accounts.ExchangeView.as_view(), name="api-exchange"),
    path("me", accounts.MeView.as_view(), name="api-me"),
    path("users", accounts.UsersView.as_view(), name="api-users"),
    path("sessions", accounts.SessionsView.as_view(), name="api-sessions"),
    path("sessions/<str:handle>", accounts.SessionView.as_view(), name="api-session"),
    path("tokens", tokens.TokensView.as_view(), name="api-tokens"),
    path("tokens/current", tokens.CurrentTokenView.as_view(), name="api-current-token"),
    path("tokens/<uuid:token_id>", tokens.TokenView.as_view(), name="api-token"),
    path("invitations", namespaces.InvitationsView.as_view(), name="api-invitations"),
    path("invitations/<uuid:invitation_id>/accept", namespaces.AcceptView.as_view(), name="api-accept"),
    path("invitations/<uuid:invitation_id>/decline", namespaces.DeclineView.as_view(), name="api-decline"),
    path("namespaces", namespaces.NamespacesView.as_view(), name="api-namespaces"),
    path("namespaces/<str:ns>", namespaces.NamespaceView.as_view(), name="api-namespace"),
    path("namespaces/<str:ns>/abilities", namespaces.AbilitiesView.as_view(), name="api-abilities"),
    path("namespaces/<str:ns>/hand-over", namespaces.HandOverView.as_view(), name="api-hand-over"),
    path("namespaces/<str:ns>/members", namespaces.MembersView.as_view(), name="api-members"),
    path("namespaces/<str:ns>/members/<str:username>", namespaces.MemberView.as_view(), name="api-member"),
    path(
        "namespaces/<str:ns>/invitations",
        namespaces.NamespaceInvitationsView.as_view(),
        name="api-namespace-invitations",
    ),
    path(
        "namespaces/<str:ns>/invitations/<uuid:invitation_id>",
        namespaces.NamespaceInvitationView.as_view(),
        name="api-namespace-invitation",
    ),
    path("namespaces/<str:ns>/tokens", tokens.ServiceTokensView.as_view(), name="api-service-tokens"),
    path("namespaces/<str:ns>/tokens/<uuid:token_id>", tokens.ServiceTokenView.as_view(), name="api-service-token"),
]
