"""The proxy over HTTP, before a server that misbehaves: real portal, real streams, real connections."""

from __future__ import annotations

import json
import socket
from typing import Any

import httpx
import pytest

from jobs.live.notebooks import exchange
from jobs.models import Notebook
from portal.common.doorbell import ring
from rbac.models import AuditEntry
from rbac.socket_revocation import account_topic
from tests.factories import LONG_AGO, make_token
from tests.jobs.live.notebooks.conftest import Web
from tests.jobs.live.notebooks.hostile_server import EMPTY, OK, PIECE
from tests.personas import EVERYBODY, Personas, session_of
from tests.waiting import until

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.processes]


# --- Who may ---------------------------------------------------------------------------------------------------------
# The portal's page for each: admin, owner, developer, viewer, stranger, nobody, then a disabled account.
OPENED = "303 303 303 403 404 302 302"


@pytest.mark.invariant("Only a developer or owner of the namespace opens a notebook.")
def test_everybody_gets_what_the_table_says(people: Personas, web: Web) -> None:
    statuses = []
    for name in (*EVERYBODY, "disabled"):
        answer = people.client(name).get(f"{web.base}lab", headers={"host": f"127.0.0.1:{web.port}"})
        ticket = answer.status_code == 302 and answer.headers["location"].startswith(web.origin)
        statuses.append("303" if ticket else str(answer.status_code))
    assert " ".join(statuses) == OPENED


# The status for tokens: of an owner, with the scope, without it, of a viewer, a stranger, revoked, of a closed account.
TOKENS = "200 200 403 403 404 401 401"


@pytest.mark.invariant("Only a token of a developer or owner with the scope job:exec reaches the API of a notebook.")
def test_tokens_get_what_the_table_says(people: Personas, web: Web) -> None:
    scopes = ["namespace:read", "job:read", "job:exec"]
    secrets = [
        make_token(people.owner),
        make_token(people.owner, scopes=scopes),
        make_token(people.owner, scopes=scopes[:2]),
        make_token(people.viewer, scopes=scopes),
        make_token(people.stranger),
        make_token(people.owner, revoked=LONG_AGO),
        make_token(people.disabled),
    ]
    with web.client() as client:
        by_header = [client.get(f"{web.base}api/kernels", headers={"authorization": f"token {one}"}) for one in secrets]
        by_query = [client.get(f"{web.base}api/kernels", params={"token": one}) for one in secrets]
    for answers in (by_header, by_query):
        assert " ".join(str(answer.status_code) for answer in answers) == TOKENS


def test_a_browser_is_sent_to_the_origin_of_the_notebook_with_a_ticket_for_one_use(people: Personas, web: Web) -> None:
    with web.client(cookie=f"regatta-session={session_of(people.developer)}") as client:
        location = client.get(f"{web.base}lab?reset").headers["location"]
    path = location.removeprefix(web.origin)
    with web.client(host=web.host) as browser:
        opened = browser.get(path)
        assert (opened.status_code, opened.headers["location"]) == (303, f"{web.base}lab?reset")
        cookie = opened.headers["set-cookie"]
        assert "HttpOnly" in cookie
        assert "SameSite=Lax" in cookie
        assert "Domain" not in cookie
        page = browser.get(opened.headers["location"], headers={"cookie": cookie.partition(";")[0]})
        assert page.json()["headers"]["x-regatta-person"] == "developer"
        again = browser.get(path)
        assert again.status_code == 403
        assert "set-cookie" not in again.headers
    entry = AuditEntry.objects.get(action="notebook.open")
    assert (entry.actor, entry.target, entry.namespace) == (people.developer, str(web.notebook.pk), "team")


def test_a_page_without_a_session_begins_one_and_a_script_is_refused(people: Personas, web: Web) -> None:
    with web.client(host=web.host, accept="text/html") as client:
        answer = client.get(f"{web.base}lab")
        assert (answer.status_code, answer.headers["location"]) == (303, f"{web.portal}{web.base}lab")
    with web.client(host=web.host) as client:
        assert client.get(f"{web.base}api/kernels").status_code == 401
    assert not web.server.seen


@pytest.mark.invariant("A session with a notebook ends with the portal's session, the password and the role.")
@pytest.mark.parametrize("loss", ["signed out", "password", "disabled", "role"])
def test_a_lost_right_ends_the_session_with_the_notebook(people: Personas, web: Web, loss: str) -> None:
    from rbac.models import Membership, Session

    with web.browser(people.developer) as browser:
        assert browser.get(f"{web.base}api").status_code == 200
        if loss == "signed out":
            Session.objects.all().delete()
        elif loss == "password":
            people.developer.set_password("another password")
            people.developer.save()
        elif loss == "disabled":
            type(people.developer).objects.filter(pk=people.developer.pk).update(is_active=False)
        else:
            Membership.objects.filter(user=people.developer).update(role="viewer")
        assert browser.get(f"{web.base}api").status_code == (403 if loss == "role" else 401)


def test_an_impersonated_account_opens_no_notebook(people: Personas, web: Web) -> None:
    client = people.client("owner")
    session = client.session
    session["looking"] = people.admin.pk
    session.save()
    assert client.get(f"{web.base}lab").status_code == 403


def test_a_notebook_that_does_not_run_says_so(people: Personas, web: Web) -> None:
    browser = web.browser(people.developer)
    Notebook.objects.update(job=None)
    page = browser.get(f"{web.base}lab", headers={"accept": "text/html"})
    assert page.status_code == 409
    assert f"{web.portal}/n/team/notebooks" in page.text
    problem = browser.get(f"{web.base}api/kernels").json()
    assert (problem["status"], problem["code"]) == (409, "conflict")
    browser.close()


# --- Separation of origins -------------------------------------------------------------------------------------------
@pytest.mark.invariant("The portal does not exist on the origin of a notebook, nor a notebook's page on the portal's.")
def test_each_origin_serves_only_its_own(people: Personas, web: Web) -> None:
    session = f"regatta-session={session_of(people.developer)}"
    with web.client(host=web.host, cookie=session, authorization=f"Bearer {make_token(people.owner)}") as client:
        for path in ("/", "/api/v1/me", "/static/portal.css", "/n/team/jobs", "/healthz", web.base[:-1]):
            assert client.get(path).status_code == 404, path
        assert client.get(f"{web.base}api/kernels").status_code == 401, "neither the session nor a token counts here"
    for host in (
        f"x.{web.host}",
        f"nonsense.notebook.localhost:{web.port}",
        f"{web.notebook.pk.hex}.NOTEBOOK.localhost.",
    ):
        with web.client(host=host, cookie=session) as client:
            assert client.get("/api/v1/me").status_code == 404
    with web.client(cookie=f"{session}; {web.cookie(people.developer)}", origin=web.portal) as client:
        assert client.get(f"{web.base}api/kernels").status_code == 401, "a session of the portal is no token"
        assert client.put(f"{web.base}files/x").status_code in (403, 405)
    assert not web.server.seen


def test_a_session_is_of_one_notebook(people: Personas, web: Web) -> None:
    other = Notebook.objects.get()
    other.pk, other.name = None, "other"
    other._state.adding = True
    other.save()
    host = f"{other.pk.hex}.notebook.localhost:{web.port}"
    with web.client(host=host, cookie=web.cookie(people.developer)) as client:
        assert client.get(f"/n/team/notebooks/{other.pk}/api").status_code == 401
        assert client.get(f"{web.base}api").status_code == 404


@pytest.mark.invariant("A request that a page of another site causes does not reach a notebook.")
def test_requests_of_other_sites_are_refused(people: Personas, web: Web) -> None:
    cookie = web.cookie(people.developer)
    foreign: list[tuple[str, dict[str, str]]] = [
        ("POST", {"origin": "http://evil.example"}),
        ("POST", {"origin": web.portal}),
        ("POST", {"origin": "null"}),
        ("DELETE", {}),
        ("GET", {"sec-fetch-site": "cross-site", "sec-fetch-mode": "no-cors", "sec-fetch-dest": "script"}),
        ("GET", {"sec-fetch-site": "same-site", "sec-fetch-mode": "navigate", "sec-fetch-dest": "iframe"}),
        ("GET", {"service-worker": "script", "sec-fetch-site": "same-origin"}),
    ]
    with web.client(host=web.host, cookie=cookie) as client:
        for method, headers in foreign:
            assert client.request(method, f"{web.base}api/kernels", headers=headers).status_code == 403, headers
        assert not web.server.seen
        link = {"sec-fetch-site": "cross-site", "sec-fetch-mode": "navigate", "sec-fetch-dest": "document"}
        assert client.get(f"{web.base}lab", headers=link).status_code == 200


# --- What passes -----------------------------------------------------------------------------------------------------
@pytest.mark.invariant("No credential of the portal reaches the server of a notebook.")
def test_the_server_gets_no_credentials(people: Personas, web: Web) -> None:
    token = make_token(people.owner)
    unwanted = {
        "x-forwarded-for": "1.2.3.4", "x-forwarded-host": "evil", "forwarded": "for=1", "x-real-ip": "1.2.3.4",
        "x-regatta-person": "root", "x_regatta_person": "root", "proxy-authorization": "x", "te": "trailers",
        "referer": "http://x/?token=y", "connection": "keep-alive, x-hop", "x-hop": "1", "accept": "text/plain",
    }  # fmt: skip
    with web.browser(people.developer, authorization=f"Bearer {token}") as browser:
        seen = browser.get(f"{web.base}api/contents?type=file&token={token}", headers=unwanted).json()
    assert seen["target"] == f"{web.base}api/contents?type=file"
    assert token not in json.dumps(seen)
    assert set(seen["headers"]) <= {"host", "accept", "accept-encoding", "user-agent", "x-regatta-person"}
    assert (seen["headers"]["host"], seen["headers"]["x-regatta-person"]) == (web.host, "developer")
    assert seen["headers"]["accept"] == "text/plain"
    with web.client(authorization=f"token {token}", cookie="regatta-session=x") as client:
        seen = client.get(f"{web.base}api/contents").json()["headers"]
    assert not {"authorization", "cookie"} & set(seen)


@pytest.mark.invariant("The server of a notebook sets no cookie, and no policy of its origin.")
def test_headers_of_the_server_are_those_of_a_list(people: Personas, web: Web) -> None:
    web.server.pages["bad"] = (
        OK + b"Set-Cookie: a=b; Domain=localhost\r\nContent-Security-Policy: default-src *\r\nAlt-Svc: h2=evil\r\n"
        b"Access-Control-Allow-Origin: *\r\nClear-Site-Data: *\r\nRefresh: 0;url=http://evil\r\nLink: <http://evil>\r\n"
        b"Service-Worker-Allowed: /\r\nX-Frame-Options: ALLOWALL\r\nCache-Control: public, s-maxage=9, max-age=5\r\n"
        b"Connection: close, x-hop\r\nX-Hop: 1\r\nETag: e\r\nContent-Type: text/html\r\n" + EMPTY
    )
    with web.browser(people.developer) as browser:
        headers = browser.get(f"{web.base}bad").headers
    assert (headers["etag"], headers["content-type"], headers["cache-control"]) == (
        "e",
        "text/html",
        "private, max-age=5",
    )
    policy = headers["content-security-policy"]
    assert f"connect-src 'self' ws://{web.host} wss://{web.host}" in policy
    assert "frame-ancestors 'self'" in policy
    unwanted = ("set-cookie", "alt-svc", "refresh", "link", "clear-site-data", "x-hop", "service-worker-allowed")
    assert not [name for name in (*unwanted, "access-control-allow-origin") if name in headers]
    with web.client(authorization=f"token {make_token(people.owner)}") as client:
        assert client.get(f"{web.base}api/bad").headers["content-security-policy"] == "default-src 'none'; sandbox"


REDIRECTS: tuple[tuple[str, str | None], ...] = (
    ("{base}tree", "{base}tree"),
    ("http://{host}{base}tree?a=1#b", "{base}tree?a=1#b"),
    ("http://evil.example{base}tree", None),
    ("//evil.example/", None),
    ("/n/team/jobs", None),
    ("{base}../../jobs", None),
    ("{base}%2e%2e/%2e%2e/jobs", None),
    ("/\\evil.example", None),
    ("javascript:alert(1)", None),
    ("http://{host}@evil.example{base}", None),
)


def test_a_redirect_stays_below_the_notebook(people: Personas, web: Web) -> None:
    known = {"base": web.base, "host": web.host}
    with web.browser(people.developer) as browser:
        for location, answer in REDIRECTS:
            field = location.format(**known).encode()
            web.server.pages["go"] = b"HTTP/1.1 302 Found\r\nLocation: %b\r\n" % field + EMPTY
            got = browser.get(f"{web.base}go")
            expected = (502, None) if answer is None else (302, answer.format(**known))
            assert (got.status_code, got.headers.get("location")) == expected, location


AWAY = (
    "../jobs",
    "%2e%2e/jobs",
    "a/%2E./b",
    "..%2fjobs",
    "%252e%252e/x",
    "a//b",
    "/evil",
    "a\\b",
    "a%5cb",
    "a%00b",
    "./a",
)


def test_a_path_that_could_leave_the_notebook_is_refused(people: Personas, web: Web) -> None:
    cookie = web.cookie(people.developer)
    for path in AWAY:
        head = f"GET {web.base}{path} HTTP/1.1\r\nHost: {web.host}\r\nCookie: {cookie}\r\nConnection: close\r\n\r\n"
        assert b" 404 " in web.exchange(head.encode()).partition(b"\r\n")[0], path
    assert not web.server.seen


@pytest.mark.invariant("A request cannot smuggle another one to the server of a notebook.")
def test_an_ambiguous_request_is_refused(people: Personas, web: Web) -> None:
    head = f"POST {web.base}api HTTP/1.1\r\nHost: {web.host}\r\nOrigin: {web.origin}\r\nConnection: close\r\n"
    smuggled = f"0\r\n\r\nGET {web.base}smuggled HTTP/1.1\r\nHost: x\r\n\r\n"
    cookie = web.cookie(people.developer)
    for fields in (
        "Content-Length: 4\r\nTransfer-Encoding: chunked",
        "Content-Length: 4\r\nContent-Length: 60",
        "Transfer-Encoding: chunked, identity",
        "Host: 127.0.0.1",
    ):
        web.exchange(f"{head}Cookie: {cookie}\r\n{fields}\r\n\r\n{smuggled}".encode())
    assert not [one for one in web.server.seen if "smuggled" in one.target]


NO_RESPONSES = (
    b"",
    b"SSH-2.0\r\n",
    b"HTTP/1.1 101 Switching Protocols\r\n\r\n",
    b"HTTP/1.1 799 Odd\r\nContent-Length: 0\r\n\r\n",
    OK + b"Content-Length: 4\r\nContent-Length: 5\r\n\r\n",
    OK + b"Bad Header\r\n\r\n",
    OK + b"X: " + b"y" * 100_000,
    OK + b"Transfer-Encoding: gzip\r\n\r\n",
)


def test_what_is_no_response_is_answered_as_a_bad_gateway(people: Personas, web: Web) -> None:
    with web.browser(people.developer) as browser:
        for response in NO_RESPONSES:
            web.server.pages["bad"] = response
            assert browser.get(f"{web.base}bad").status_code == 502, response[:50]
        assert browser.get(f"{web.base}api").status_code == 200, "the next request is not affected"


def test_bytes_after_a_response_are_not_taken_for_the_next_one(people: Personas, web: Web) -> None:
    web.server.pages["more"] = OK + b"Content-Length: 2\r\n\r\nokHTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nevil"
    with web.browser(people.developer) as browser:
        assert browser.get(f"{web.base}more").text == "ok"
        assert browser.get(f"{web.base}api").json()["target"] == f"{web.base}api"


# --- Streams ---------------------------------------------------------------------------------------------------------
@pytest.mark.invariant("A response of 1 GB that is not read waits in the server, not in the portal.")
@pytest.mark.invariant("A lost right to a notebook ends its running requests within 5 seconds.")
@pytest.mark.parametrize("notice", [True, False])
def test_a_lost_right_ends_a_running_request(
    people: Personas, web: Web, notice: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    from rbac.models import Membership

    assert exchange.RECHECK_SECONDS <= 4
    if not notice:
        monkeypatch.setattr(exchange, "RECHECK_SECONDS", 0.1)
    with web.browser(people.developer) as browser, browser.stream("GET", f"{web.base}unfinished") as answer:
        pieces = answer.iter_raw()
        assert next(pieces) == b"hello"
        Membership.objects.filter(user=people.developer).update(role="viewer")
        if notice:
            ring(account_topic(people.developer.pk))
        with pytest.raises(httpx.RemoteProtocolError):
            next(pieces)


@pytest.mark.parametrize(
    ("use", "status"), [("script", 403), ("style", 403), ("worker", 403), ("empty", 200), ("", 200)]
)
def test_a_page_of_the_portal_loads_no_code_of_a_notebook(people: Personas, web: Web, use: str, status: int) -> None:
    headers = {"authorization": f"token {make_token(people.owner)}", **({"sec-fetch-dest": use} if use else {})}
    with web.client() as client:
        assert client.get(f"{web.base}api/kernels", headers=headers).status_code == status


def test_a_flood_waits_for_the_reader(people: Personas, web: Web) -> None:
    head = f"GET {web.base}flood HTTP/1.1\r\nHost: {web.host}\r\nCookie: {web.cookie(people.developer)}\r\n\r\n"
    with socket.create_connection(("127.0.0.1", web.port)) as link:
        link.sendall(head.encode())
        until("it sends", lambda: web.server.sent > 0)
        for _ in range(100):
            link.recv(len(PIECE))
        with web.browser(people.developer) as browser:
            assert browser.get(f"{web.base}api").status_code == 200, "others are served meanwhile"
        assert web.server.sent < 32 * 2**20
    before = web.server.connections
    with web.browser(people.developer) as browser:
        assert browser.get(f"{web.base}api").status_code == 200
    assert web.server.connections >= before


def test_a_response_that_breaks_off_stays_incomplete(people: Personas, web: Web) -> None:
    with web.browser(people.developer) as browser, pytest.raises(httpx.RemoteProtocolError):
        browser.get(f"{web.base}half")


def test_a_client_that_leaves_ends_the_request_at_the_server(people: Personas, web: Web) -> None:
    head = f"GET {web.base}silent HTTP/1.1\r\nHost: {web.host}\r\nCookie: {web.cookie(people.developer)}\r\n\r\n"
    ended: list[Any] = []
    serve = web.server.serve

    def noted(link: socket.socket) -> None:
        serve(link)
        ended.append(link)

    web.server.serve = noted  # type: ignore[method-assign]
    with socket.create_connection(("127.0.0.1", web.port)) as link:
        link.sendall(head.encode())
        until("the server has it", lambda: web.server.seen)
    with web.browser(people.developer) as browser:
        until("its connection is closed", lambda: browser.get(f"{web.base}api").status_code == 200)


@pytest.mark.parametrize("chunked", [True, False])
def test_a_body_passes_without_being_stored(people: Personas, web: Web, chunked: bool) -> None:
    content: Any = (PIECE for _ in range(64)) if chunked else PIECE * 64
    with web.browser(people.developer) as browser:
        assert browser.put(f"{web.base}api/contents/x", content=content).status_code == 200
    assert web.server.bodies >= 64 * len(PIECE)


def test_a_connection_serves_many_requests(people: Personas, web: Web) -> None:
    with web.browser(people.developer) as browser:
        used = {browser.get(f"{web.base}api").json()["connection"] for _ in range(5)}
        assert len(used) == 1
        assert browser.head(f"{web.base}api").status_code == 200


def test_a_kept_connection_that_the_server_has_closed_is_replaced(people: Personas, web: Web) -> None:
    web.server.pages["last"] = OK + b"\r\nend"
    with web.browser(people.developer) as browser:
        assert browser.get(f"{web.base}last").text == "end"
        assert browser.get(f"{web.base}api").status_code == 200


def test_only_use_by_a_person_counts_as_use(people: Personas, web: Web) -> None:
    Notebook.objects.update(last_used=LONG_AGO)
    with web.browser(people.developer) as browser:
        browser.get(f"{web.base}api/kernels")
        assert Notebook.objects.get().last_used == LONG_AGO
        browser.post(f"{web.base}api/kernels")
        assert Notebook.objects.get().last_used > LONG_AGO
