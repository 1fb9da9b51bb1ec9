from __future__ import annotations

from django.urls import path
from django.views.i18n import set_language

from rbac import views

urlpatterns = [
    path("sign-in", views.sign_in, name="sign-in"),
    path("sign-out", views.sign_out, name="sign-out"),
    path("tokens", views.tokens, name="tokens"),
    path("tokens/<uuid:token_id>/revoke", views.revoke_token, name="revoke-token"),
    # Refuses a ``next`` that is not ours; by POST only.
    path("language", set_language, name="language"),
]
