"""ASGI application of the proxy, around the portal's own.

A host below the domain of notebooks is the origin of one notebook: everything goes to its server, and nothing of the
portal exists there. On the portal's origin only the API of Jupyter is served, to programs with a personal token.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any
from urllib.parse import parse_qs

from django.conf import settings
from django.utils import translation

from jobs.control.errors import ControlError
from jobs.live.authentication import language
from jobs.live.notebooks import addresses, cross_site
from jobs.live.notebooks.addresses import Address
from jobs.live.notebooks.answers import Answer, BadGateway, Message, page_answer, problem_answer, redirect_answer
from jobs.live.notebooks.callers import Caller, cookie_of, token_of
from jobs.live.notebooks.cross_site import SAFE
from jobs.live.notebooks.exchange import Exchange, Request
from jobs.live.notebooks.headers import SANDBOX, Headers, content_security_policy, to_server, value_of, values_of
from jobs.live.notebooks.relay import Handshake, Relay, ServerRefused, ServerSocket
from jobs.live.notebooks.upstream import Pool
from jobs.messages import notebooks as messages
from jobs.notebooks import access, origin, sessions
from jobs.notebooks.access import Target
from jobs.notebooks.origin import Place
from jobs.streams.tailer import in_thread
from portal.common import outages, trusted_proxies
from portal.common.errors import Forbidden, NotFound, NotSignedIn, RegattaError
from portal.common.monitoring import log_context
from rbac.audit.context import AuditContext, address_of
from rbac.models import User

Scope = dict[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
Application = Callable[[Scope, Any, Any], Awaitable[None]]

# What programs with a token reach on the portal's origin, below the base URL of the notebook.
_API = ("api/", "terminals/websocket/")
_KINDS = ("http", "websocket")


@dataclass(frozen=True)
class Visit:
    """One request or websocket: its address, its caller, and the policy of its response."""

    scope: Scope
    address: Address
    caller: Caller
    host: str
    query: bytes
    policy: str

    @property
    def method(self) -> str:
        return str(self.scope.get("method", ""))

    @property
    def target(self) -> str:
        """The path and the query of the request to the server."""
        query = f"?{self.query.decode('latin-1')}" if self.query else ""
        return f"{self.address.base}{self.address.rest}{query}"

    @property
    def headers(self) -> Headers:
        headers: Headers = self.scope["headers"]
        return headers


class NotebookProxy:
    """Serves notebooks, and passes everything else to ``application``."""

    def __init__(self, application: Application) -> None:
        self._application = application
        self._pool: Pool | None = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] not in _KINDS:
            await self._application(scope, receive, send)
            return
        hosts = list(values_of(scope["headers"], b"host"))
        place = origin.place_of(hosts[0]) if len(hosts) == 1 else None
        if place is not None:
            await self._guarded(self._on_own_origin(place), scope, receive, send)
        elif (visit := _of_program(scope)) is not None:
            await self._guarded(self._on_portals_origin(visit), scope, receive, send)
        else:
            await self._application(scope, receive, send)

    async def _guarded(self, serve: Application, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve, and answer what was refused before the response has begun."""
        log_context.note(route="notebook")
        with translation.override(language(scope)):
            try:
                await serve(scope, receive, send)
            except RegattaError as error:
                await _answer(problem_answer(error), scope, receive, send)
            except Exception as error:
                if (away := outages.unavailable(error)) is None:
                    raise
                await _answer(problem_answer(away), scope, receive, send)

    # --- The origin of a notebook ------------------------------------------------------------------------------------
    def _on_own_origin(self, place: Place) -> Application:
        async def serve(scope: Scope, receive: Receive, send: Send) -> None:
            visit = _of_browser(scope, place)
            _require_encryption(scope)
            if visit.address.rest == sessions.OPEN and visit.method == "GET":
                await _answer(await in_thread(_opened, visit), scope, receive, send)
                return
            own = f"{origin.scheme()}://{place.host}"
            if cross_site.is_foreign(visit.method, visit.headers, own):
                raise Forbidden(messages.NOTEBOOK_FOREIGN_REQUEST())
            try:
                await self._proxied(visit)(scope, receive, send)
            except RegattaError as error:
                if not cross_site.is_navigation(visit.method, visit.headers):
                    raise
                await _answer(await in_thread(_page_of, visit, error), scope, receive, send)

        return serve

    def _on_portals_origin(self, visit: Visit) -> Application:
        async def serve(scope: Scope, receive: Receive, send: Send) -> None:
            _require_encryption(scope)
            # A page of the portal must not load code of users, as a script, a style or a worker.
            if value_of(visit.headers, b"sec-fetch-dest") not in ("", "empty", "websocket"):
                raise Forbidden(messages.NOTEBOOK_FOREIGN_REQUEST())
            await self._proxied(visit)(scope, receive, send)

        return serve

    # --- To the server -----------------------------------------------------------------------------------------------
    def _proxied(self, visit: Visit) -> Application:
        async def serve(scope: Scope, receive: Receive, send: Send) -> None:
            user, target = await in_thread(visit.caller.admitted)
            log_context.note(user=user.pk)
            if scope["type"] == "websocket":
                await self._relay(visit, user, target, receive, send)
                return
            # What pages request by themselves, again and again, is no use of the notebook.
            if visit.method not in SAFE or cross_site.is_navigation(visit.method, visit.headers):
                await in_thread(access.note_use, visit.address.notebook)
            request = Request(visit.method, visit.target, _request_headers(visit, user), visit.host, visit.policy)
            guarded = (visit.caller, user)
            await Exchange(self._connections(), target, request, receive, send, *guarded).run()

        return serve

    async def _relay(self, visit: Visit, user: User, target: Target, receive: Receive, send: Send) -> None:
        await receive()  # the request to connect
        pool = self._connections()
        try:
            stream = await pool.open(target)
        except ControlError as error:
            raise BadGateway(messages.NOTEBOOK_SERVER_SILENT()) from error
        try:
            headers = to_server(visit.headers, visit.host, user.username)
            handshake = Handshake(visit.host, visit.target, headers, visit.scope.get("subprotocols") or ())
            server = ServerSocket(stream, handshake)
            try:
                await server.open()
            except (ControlError, ServerRefused) as error:
                raise BadGateway(messages.NOTEBOOK_SERVER_SILENT()) from error
            await send({"type": "websocket.accept", "subprotocol": server.subprotocol})
            await Relay(visit.caller, user, server, receive, send).run()
        finally:
            await pool.drop(target, stream)

    def _connections(self) -> Pool:
        """Return the connections of this process. They belong to its event loop, which runs by now."""
        if self._pool is None:
            self._pool = Pool()
        return self._pool


# --- Visits ----------------------------------------------------------------------------------------------------------
def _of_browser(scope: Scope, place: Place) -> Visit:
    """Return the visit to a notebook's origin. Raises NotFound for an address that is none of this notebook."""
    address = addresses.address_of(_raw_path(scope))
    if address is None or place.notebook is None or address.notebook != place.notebook:
        raise NotFound(messages.NOTEBOOK_ADDRESS_INVALID())
    # A personal token has no place here, and code of users must not get it.
    query, _ = addresses.without_token(scope.get("query_string", b""))
    caller = Caller(address.namespace, address.notebook, cookie=cookie_of(scope["headers"]))
    return Visit(scope, address, caller, place.host, query, content_security_policy(place.host))


def _of_program(scope: Scope) -> Visit | None:
    """Return the visit of a program with a token to the API on the portal's origin; None for any other request."""
    address = addresses.address_of(_raw_path(scope))
    if address is None or not (address.rest == "api" or address.rest.startswith(_API)):
        return None
    query, in_query = addresses.without_token(scope.get("query_string", b""))
    token = token_of(scope["headers"], in_query)
    caller = Caller(address.namespace, address.notebook, token=token)
    return Visit(scope, address, caller, value_of(scope["headers"], b"host"), query, SANDBOX)


def _raw_path(scope: Scope) -> bytes:
    """Return the path as it was sent, without the query."""
    raw: bytes = scope.get("raw_path") or scope["path"].encode()
    return raw.partition(b"?")[0]


def _require_encryption(scope: Scope) -> None:
    """Raise Forbidden for a request without encryption at a portal that is reached over HTTPS."""
    peer, forwarded = str((scope.get("client") or ("",))[0]), value_of(scope["headers"], b"x-forwarded-proto")
    if settings.HTTPS and not trusted_proxies.is_encrypted(peer, forwarded, settings.TRUSTED_PROXIES):
        raise Forbidden(messages.NOTEBOOK_NOT_ENCRYPTED())


def _request_headers(visit: Visit, user: User) -> Headers:
    headers = to_server(visit.headers, visit.host, user.username)
    if visit.method in SAFE:
        return [(name, value) for name, value in headers if name != b"content-length"]
    if value_of(visit.headers, b"transfer-encoding") and not value_of(headers, b"content-length"):
        headers.append((b"transfer-encoding", b"chunked"))
    return headers


# --- Answers of the proxy itself -------------------------------------------------------------------------------------
def _opened(visit: Visit) -> Answer:
    """Exchange the ticket for a cookie, and return the redirect to the page."""
    fields = parse_qs(visit.query.decode("latin-1"))
    client = visit.scope.get("client") or ("", 0)
    context = AuditContext(address=address_of(client[0]), request_id=log_context.current().request_id)
    opened = sessions.redeem(fields.get("ticket", [""])[0], visit.address.notebook, context)
    if opened is None:
        return page_answer(Forbidden(messages.NOTEBOOK_TICKET_INVALID()), _portal_page(visit, _portal(visit)))
    page = addresses.location_within(fields.get("next", [""])[0], visit.address.base, visit.host)
    secure = "; Secure" if settings.HTTPS else ""
    cookie = (
        f"{origin.cookie_name()}={opened.secret}; Path=/; HttpOnly; SameSite=Lax{secure}; "
        f"Max-Age={settings.SESSION_COOKIE_AGE}"
    )
    return redirect_answer(page or f"{visit.address.base}lab", cookie)


def _page_of(visit: Visit, error: RegattaError) -> Answer:
    """Return what a person sees who opens a page: without a session, the portal's page that begins one."""
    portal = _portal(visit)
    if isinstance(error, NotSignedIn):
        return redirect_answer(f"{portal}{visit.target}")
    return page_answer(error, _portal_page(visit, portal))


def _portal_page(visit: Visit, portal: str) -> str:
    return f"{portal}/n/{visit.address.namespace}/notebooks"


def _portal(visit: Visit) -> str:
    """Return the origin of the portal: the one from which the browser came, else the first of the settings."""
    if known := sessions.portal_of(visit.caller.cookie, visit.address.notebook):
        return known
    if settings.CSRF_TRUSTED_ORIGINS:
        return str(settings.CSRF_TRUSTED_ORIGINS[0])
    _, _, port = visit.host.partition(":")
    return f"{origin.scheme()}://{settings.ALLOWED_HOSTS[0]}{':' if port else ''}{port}"


async def _answer(answer: Answer, scope: Scope, receive: Receive, send: Send) -> None:
    """Send a response; a websocket is refused before its acceptance, which is a 403."""
    if scope["type"] == "websocket":
        await send({"type": "websocket.close"})
        return
    for message in answer.messages(str(scope.get("method", ""))):
        await send(message)
