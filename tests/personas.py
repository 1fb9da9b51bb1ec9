"""Users with different roles around one namespace, ``team``, for tests of views."""

from __future__ import annotations

from dataclasses import dataclass

from django.conf import settings
from django.contrib.auth import BACKEND_SESSION_KEY, HASH_SESSION_KEY, SESSION_KEY
from django.contrib.auth.models import AnonymousUser
from django.test import Client

from rbac.models import Namespace, Role, User
from rbac.sign_in.sessions import SessionStore
from tests.factories import LONG_AGO, make_member, make_namespace, make_token, make_user

# Members of the namespace, by descending role; then others.
MEMBERS = ("owner", "developer", "viewer")
OUTSIDERS = ("stranger", "nobody")
EVERYBODY = ("admin", *MEMBERS, *OUTSIDERS)
# Credentials that were valid once: an owner whose account was closed, and an owner's token that was revoked.
SHUT_OUT = ("disabled", "revoked")


@dataclass(frozen=True)
class Personas:
    """Users around the namespace ``team``.

    ``stranger`` has an account and a namespace, but is not a member of ``team``; ``nobody`` is not signed in;
    ``disabled`` was an owner and signed in when the account was closed.
    """

    namespace: Namespace
    admin: User
    owner: User
    developer: User
    viewer: User
    stranger: User
    nobody: AnonymousUser
    disabled: User

    def user(self, name: str) -> User | AnonymousUser:
        found: User | AnonymousUser = getattr(self, name)
        return found

    def client(self, name: str) -> Client:
        """Return a browser of that user, signed in except for ``nobody``. CSRF tokens are not checked."""
        if name == "revoked":
            secret = make_token(self.owner, revoked=LONG_AGO)
            return Client(headers={"authorization": f"Bearer {secret}"})
        client = Client()
        user = self.user(name)
        if isinstance(user, User):
            client.cookies[settings.SESSION_COOKIE_NAME] = session_of(user)
        return client


def session_of(user: User) -> str:
    """Return the key of a session of that user: one row, whereas a sign-in runs a dozen queries."""
    session = SessionStore()
    session[SESSION_KEY] = str(user.pk)
    session[BACKEND_SESSION_KEY] = "django.contrib.auth.backends.ModelBackend"
    session[HASH_SESSION_KEY] = user.get_session_auth_hash()
    session.create()
    return str(session.session_key)


def make_personas() -> Personas:
    people = {name: make_user(name) for name in (*MEMBERS, "stranger", "disabled")}
    namespace = make_namespace("team")
    make_member(namespace, people["disabled"], Role.OWNER)
    people["disabled"].is_active = False
    people["disabled"].save()
    for name in MEMBERS:
        make_member(namespace, people[name], Role(name))
    make_namespace("elsewhere", owner=people["stranger"])
    return Personas(namespace=namespace, admin=make_user("root", admin=True), nobody=AnonymousUser(), **people)
