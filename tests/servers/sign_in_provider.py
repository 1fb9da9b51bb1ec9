"""Small sign-in provider on its own port: OpenID Connect, and OAuth 2.0 in Baidu's variant."""

from __future__ import annotations

import json
import secrets
import threading
import time
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlencode, urlsplit

import jwt
from cryptography.hazmat.primitives.asymmetric import rsa
from jwt.algorithms import RSAAlgorithm

CLIENT_ID, CLIENT_SECRET = "regatta", "the portal's secret"
_KEY_ID = "key-1"
# Protocols of the portal, and the backend class of each.
BACKENDS = {
    "oidc": "social_core.backends.open_id_connect.OpenIdConnectAuth",
    "baidu": "rbac.sign_in.baidu.BaiduOAuth2",
}


@dataclass
class Person:
    """User of the provider: the data that the provider reports."""

    sub: str = "1001"
    username: str = "grace"
    email: str = "grace@example.org"
    email_verified: bool = True


@dataclass
class Provider:
    """Runs inside the block.

    ``refuses``: the user declines. ``asked`` are the requested paths in order. ``damaged`` replaces the response body
    of a path.
    """

    person: Person = field(default_factory=Person)
    refuses: bool = False
    wrong_audience: bool = False
    asked: list[str] = field(default_factory=list)
    codes: dict[str, dict[str, str]] = field(default_factory=dict)
    damaged: dict[str, str] = field(default_factory=dict)

    def __enter__(self) -> Provider:
        self.key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
        handler = type("Handler", (_Handler,), {"provider": self})
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
        self.address = f"http://127.0.0.1:{self._server.server_port}"
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    # --- What is answered --------------------------------------------------------------------------------------------
    def configuration(self) -> dict[str, Any]:
        return {
            "issuer": self.address,
            "authorization_endpoint": f"{self.address}/authorize",
            "token_endpoint": f"{self.address}/token",
            "userinfo_endpoint": f"{self.address}/userinfo",
            "jwks_uri": f"{self.address}/keys",
            "response_types_supported": ["code"],
            "subject_types_supported": ["public"],
            "id_token_signing_alg_values_supported": ["RS256"],
            "token_endpoint_auth_methods_supported": ["client_secret_post"],
        }

    def keys(self) -> dict[str, Any]:
        public = json.loads(RSAAlgorithm.to_jwk(self.key.public_key()))
        return {"keys": [{**public, "kid": _KEY_ID, "use": "sig", "alg": "RS256"}]}

    def claims(self) -> dict[str, Any]:
        person = self.person
        return {
            "sub": person.sub,
            "preferred_username": person.username,
            "email": person.email,
            "email_verified": person.email_verified,
        }

    def tokens(self, asked: dict[str, str]) -> dict[str, Any]:
        wanted = self.codes.pop(asked.get("code", ""), None)
        known = asked.get("client_id") == CLIENT_ID and asked.get("client_secret") == CLIENT_SECRET
        if wanted is None or not known or asked.get("redirect_uri") != wanted["redirect_uri"]:
            return {"error": "invalid_grant"}
        now = int(time.time())
        claims = {
            **self.claims(),
            "iss": self.address,
            "aud": "another" if self.wrong_audience else CLIENT_ID,
            "iat": now,
            "exp": now + 300,
            "nonce": wanted.get("nonce", ""),
        }
        signed = jwt.encode(claims, self.key, algorithm="RS256", headers={"kid": _KEY_ID})
        return {"access_token": "token-of-the-provider", "token_type": "Bearer", "expires_in": 300, "id_token": signed}

    def back(self, asked: dict[str, str]) -> str:
        """Return the URL to which the browser is redirected after the user accepts or declines."""
        answer = {"state": asked.get("state", "")}
        if self.refuses:
            answer["error"] = "access_denied"
        else:
            answer["code"] = secrets.token_urlsafe(8)
            self.codes[answer["code"]] = asked
        return f"{asked['redirect_uri']}?{urlencode(answer)}"

    def baidu_user(self) -> dict[str, Any]:
        return {"openid": self.person.sub, "username": self.person.username, "portrait": "ab12"}


class _Handler(BaseHTTPRequestHandler):
    provider: Provider

    def do_GET(self) -> None:
        path, query = urlsplit(self.path).path, _flat(urlsplit(self.path).query)
        self.provider.asked.append(path)
        if path in ("/authorize", "/oauth/2.0/authorize"):
            self._page(query)
        elif path == "/.well-known/openid-configuration":
            self._json(self.provider.configuration())
        elif path == "/keys":
            self._json(self.provider.keys())
        elif path == "/userinfo":
            self._json(self.provider.claims())
        elif path == "/rest/2.0/passport/users/getInfo":
            good = query.get("access_token") == "token-of-the-provider"
            self._json(self.provider.baidu_user() if good else {"error_code": 110, "error_msg": "invalid token"})
        else:
            self.send_error(404)

    def do_POST(self) -> None:
        path = urlsplit(self.path).path
        self.provider.asked.append(path)
        asked = _flat(self.rfile.read(int(self.headers["Content-Length"])).decode())
        if path in ("/token", "/oauth/2.0/token"):
            answer = self.provider.tokens(asked)
            self._json(answer, 400 if "error" in answer else 200)
        else:
            self.send_error(404)

    def _page(self, query: dict[str, str]) -> None:
        """Page of the provider, with its one button."""
        back = self.provider.back(query).replace("&", "&amp;")
        self._send(f'<title>Provider</title><a id="yes" href="{back}">Sign in as somebody</a>', "text/html")

    def _json(self, body: dict[str, Any], status: int = 200) -> None:
        self._send(json.dumps(body), "application/json", status)

    def _send(self, text: str, kind: str, status: int = 200) -> None:
        body = self.provider.damaged.get(urlsplit(self.path).path, text).encode()
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        """Log nothing: the tests use ``asked``."""


def _flat(query: str) -> dict[str, str]:
    return {name: values[0] for name, values in parse_qs(query).items()}


def configure(settings: Any, provider: Provider) -> None:
    """Configure the portal to offer both protocols of this provider."""
    settings.SIGN_IN_PROVIDERS = {"oidc": "Example", "baidu": "Baidu"}
    settings.AUTHENTICATION_BACKENDS = [
        "axes.backends.AxesStandaloneBackend",
        "django.contrib.auth.backends.ModelBackend",
        *BACKENDS.values(),
    ]
    settings.SOCIAL_AUTH_OIDC_OIDC_ENDPOINT = provider.address
    settings.SOCIAL_AUTH_BAIDU_URL = provider.address
    for name in ("OIDC", "BAIDU"):
        setattr(settings, f"SOCIAL_AUTH_{name}_KEY", CLIENT_ID)
        setattr(settings, f"SOCIAL_AUTH_{name}_SECRET", CLIENT_SECRET)
