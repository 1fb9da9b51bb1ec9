"""Browser sign-in: a user who is signed in to the portal grants access to this computer.

The command listens on a local port and opens ``/connect`` of the portal with a challenge. After the user agrees, the
portal redirects the browser to that port with a code. The code is valid only together with the verifier of the
challenge, once, for two minutes (RFC 8252 and RFC 7636). If no browser can connect back (another computer, a
container), the page shows the code, and the user types it in here.
"""

from __future__ import annotations

import base64
import hashlib
import secrets
import socket
from collections.abc import Callable
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Any
from urllib.parse import parse_qs, urlencode, urlsplit

import click

from regatta.config import Context
from regatta.errors import NotSignedIn
from regatta.session import Session
from regatta.terminal.output import print_message

WAIT_SECONDS = 180.0
_PAGE = '<!doctype html><meta charset=utf-8><link rel=icon href="data:,"><title>regatta</title><p>{}</p>'
_DONE = _PAGE.format("You are signed in. Go back to the terminal.")
_STRANGE = _PAGE.format("This is not the answer that is waited for.")


def name_of_this_computer() -> str:
    """Return the default name of a token."""
    return f"regatta on {socket.gethostname()}"[:100]


def sign_in(session: Session, context: Context, name: str, *, no_browser: bool) -> str:
    """Return the token that the user grants. Raises NotSignedIn on timeout."""
    verifier, state = secrets.token_urlsafe(32), secrets.token_urlsafe(16)
    asked = {"name": name, "challenge": challenge_of(verifier)}
    if no_browser:
        print_message(f"Open this page on any computer and approve:\n\n  {context.server}/connect?{urlencode(asked)}\n")
        code = click.prompt("The code that the page shows", err=True)
    else:
        code = _by_browser(context, asked, state, session.outside.browse)
    with session.reach(context) as portal:
        return portal.tokens.exchange(code.strip(), verifier)


def challenge_of(verifier: str) -> str:
    """Return the challenge of RFC 7636, method S256."""
    return base64.urlsafe_b64encode(hashlib.sha256(verifier.encode()).digest()).rstrip(b"=").decode()


@dataclass
class _Answer:
    code: str = ""


def _by_browser(context: Context, asked: dict[str, str], state: str, browse: Callable[[str], bool]) -> str:
    answer = _Answer()
    with HTTPServer(("127.0.0.1", 0), _handler(state, answer)) as server:
        server.timeout = WAIT_SECONDS
        page = f"{context.server}/connect?{urlencode({**asked, 'port': server.server_port, 'state': state})}"
        if not browse(page):
            raise NotSignedIn("No browser could be opened. Use `regatta login --no-browser`, or `-u NAME`.")
        print_message(f"Approve the request in the browser. If no browser opened, go to\n\n  {page}\n")
        server.handle_timeout = _too_late  # type: ignore[method-assign]
        while not answer.code:
            server.handle_request()
    return answer.code


def _too_late() -> None:
    raise NotSignedIn("The request was not approved in time. Run `regatta login` again.")


def _handler(state: str, answer: _Answer) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        """Accepts the one request with our state; any other request is refused and changes nothing."""

        def do_GET(self) -> None:
            query = parse_qs(urlsplit(self.path).query)
            given, code = query.get("state", [""])[0], query.get("code", [""])[0]
            good = bool(code) and secrets.compare_digest(given.encode(), state.encode())
            if good:
                answer.code = code
            self.send_response(200 if good else 400)
            self.send_header("Content-Type", "text/html; charset=utf-8")
            self.send_header("Referrer-Policy", "no-referrer")
            self.end_headers()
            self.wfile.write((_DONE if good else _STRANGE).encode())

        def log_message(self, *_arguments: Any) -> None:
            """Log nothing: the terminal is the user's."""

    return Handler
