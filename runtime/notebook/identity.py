"""The person of a request, named by the portal, which has authorised it."""

from __future__ import annotations

from typing import Any
from urllib.parse import unquote

from jupyter_server.auth.identity import IdentityProvider, User

PERSON_HEADER = "X-Regatta-Person"


class PortalIdentity(IdentityProvider):
    """Takes the person's name from the portal's header. Only the agent and the person's own code reach the socket."""

    def get_user(self, handler: Any) -> User:
        """Return the person; sets no cookie."""
        name = unquote(handler.request.headers.get(PERSON_HEADER, "")) or "person"
        return User(username=name, name=name, display_name=name, initials=name[:2].upper())

    @property
    def auth_enabled(self) -> bool:
        return True

    @property
    def login_available(self) -> bool:
        return False

    @property
    def logout_available(self) -> bool:
        return False

    def should_check_origin(self, handler: Any) -> bool:
        """Whether to compare the origin with the host: the portal has checked it, under another name of the host."""
        return False

    def is_token_authenticated(self, handler: Any) -> bool:
        return False

    def validate_security(self, app: Any, ssl_options: Any = None) -> None:
        """Accept a server without token: see the class."""
