"""The account of a client: its tokens and its namespaces."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from regatta.errors import Missing
from regatta.http import Http
from regatta.paths import segment


class Tokens:
    """Access tokens of the account."""

    def __init__(self, http: Http) -> None:
        self._http = http

    def list(self) -> Iterator[dict[str, Any]]:
        """Yield the account's tokens, without their secrets."""
        yield from self._http.pages("/api/v1/tokens")

    def create(self, name: str, *, scopes: Sequence[str] = (), days: int | None = None) -> dict[str, Any]:
        """Create a token of the account. Its secret is in ``token`` and is returned only once."""
        return dict(self._http.post("/api/v1/tokens", {"name": name, "scopes": list(scopes), "days": days}))

    def sign_in(self, username: str, password: str, name: str, *, code: str | None = None) -> str:
        """Create a token of that account and return it. ``code`` is that of its second factor. Raises NotSignedIn."""
        body = {"username": username, "password": password, "name": name, **({"code": code} if code else {})}
        return str(self._http.post("/api/v1/auth/token", body)["token"])

    def exchange(self, code: str, verifier: str) -> str:
        """Exchange the code of a browser sign-in for a token. Raises Refused if the code was used or has expired."""
        return str(self._http.post("/api/v1/auth/exchange", {"code": code, "verifier": verifier})["token"])

    def revoke(self, token_id: str) -> None:
        """Revoke one of the account's tokens."""
        self._http.delete(f"/api/v1/tokens/{segment(token_id)}")

    def revoke_current(self) -> None:
        """Revoke the token of this client."""
        self._http.delete("/api/v1/tokens/current")


class Namespaces:
    """Namespaces that the account may see. ``default`` is the one to use where none is named, "" to derive it."""

    def __init__(self, http: Http, default: str = "") -> None:
        self._http = http
        self._default = default

    def list(self) -> Iterator[dict[str, Any]]:
        """Yield the namespaces that the account may see."""
        yield from self._http.pages("/api/v1/namespaces")

    def default(self) -> str:
        """Return the default namespace: the client's, else the one named like the account, else the first."""
        if self._default:
            return self._default
        me = self._http.get("/api/v1/me")
        names = [str(namespace["name"]) for namespace in me["namespaces"]]
        if not names:
            raise Missing("You are not a member of any namespace. Ask an admin to add you to one.")
        return str(me["username"]) if me["username"] in names else names[0]

    def quota(self, namespace: str) -> dict[str, Any]:
        """Return ``{"limits", "reserved", "used", "headroom"}``, each by resource."""
        return dict(self._http.get(f"/api/v1/namespaces/{segment(namespace)}/quota"))
