from __future__ import annotations

from django.urls import path
from django.views.i18n import set_language

from rbac.views import admin, namespaces, sessions, signing_in, tokens

urlpatterns = [
    path("sign-in", signing_in.sign_in, name="sign-in"),
    path("sign-out", signing_in.sign_out, name="sign-out"),
    path("sessions", sessions.sessions, name="sessions"),
    path("sessions/end-all", sessions.end_all, name="end-all-sessions"),
    path("sessions/<str:handle>/end", sessions.end, name="end-session"),
    path("tokens", tokens.own, name="tokens"),
    path("tokens/<uuid:token_id>/revoke", tokens.revoke_own, name="revoke-token"),
    path("invitations", namespaces.own_invitations, name="own-invitations"),
    path("invitations/link/<str:secret>", namespaces.invitation_link, name="invitation-link"),
    path(
        "invitations/<uuid:invitation_id>/accept",
        namespaces.answer_invitation,
        {"answer": "accept"},
        name="accept-invitation",
    ),
    path(
        "invitations/<uuid:invitation_id>/decline",
        namespaces.answer_invitation,
        {"answer": "decline"},
        name="decline-invitation",
    ),
    path("n/<str:ns>/members", namespaces.members, name="members"),
    path("n/<str:ns>/members/<str:username>/role", namespaces.change_role, name="change-role"),
    path("n/<str:ns>/members/<str:username>/remove", namespaces.remove_member, name="remove-member"),
    path("n/<str:ns>/members/<str:username>/hand-over", namespaces.hand_over, name="hand-over"),
    path("n/<str:ns>/invitations", namespaces.invite, name="invite"),
    path(
        "n/<str:ns>/invitations/<uuid:invitation_id>/withdraw",
        namespaces.withdraw_invitation,
        name="withdraw-invitation",
    ),
    path("n/<str:ns>/abilities", namespaces.abilities, name="abilities"),
    path("n/<str:ns>/tokens", tokens.of_namespace, name="service-tokens"),
    path("n/<str:ns>/tokens/<uuid:token_id>/revoke", tokens.revoke_of_namespace, name="revoke-service-token"),
    path("n/<str:ns>/close", namespaces.close, name="close-namespace"),
    path("admin/users", admin.users, name="admin-users"),
    path("admin/users/<str:username>", admin.user, name="admin-user"),
    path("admin/users/<str:username>/enable", admin.change_user, {"deed": "enable"}, name="enable-user"),
    path("admin/users/<str:username>/disable", admin.change_user, {"deed": "disable"}, name="disable-user"),
    path("admin/users/<str:username>/make-admin", admin.change_user, {"deed": "make-admin"}, name="make-admin"),
    path("admin/users/<str:username>/no-admin", admin.change_user, {"deed": "no-admin"}, name="no-admin"),
    path("admin/users/<str:username>/reset-password", admin.reset_password, name="admin-reset-password"),
    path("admin/users/<str:username>/look", admin.begin_to_look, name="begin-to-look"),
    path("admin/looking/end", admin.end_looking, name="end-looking"),
    path("admin/namespaces", admin.namespaces, name="admin-namespaces"),
    path("admin/audit", admin.audit_trail, name="admin-audit"),
    path("admin/audit.csv", admin.audit_csv, name="admin-audit-csv"),
    # Refuses a ``next`` that is not ours; by POST only.
    path("language", set_language, name="language"),
]
