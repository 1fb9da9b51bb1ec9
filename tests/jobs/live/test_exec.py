"""The websocket of terminals: authorisation, revocation, back-pressure, audit, and recordings. The agent is a fake."""

from __future__ import annotations

import asyncio
import json
from functools import partial
from typing import Any

import pytest
from django.test import Client

from jobs.control.errors import ControlError
from jobs.lifecycle.states import JobState, ReplicaState
from jobs.live import exec_consumer as consumer
from jobs.models import Job, Replica, TerminalRecording
from portal.common.clock import now
from rbac import services, tokens
from rbac.models import AuditEntry, Membership, Role
from runtime.control.frames import Frame, Kind, of_document
from tests.answers import whole
from tests.factories import LONG_AGO, make_attempt, make_job, make_token
from tests.jobs.live.frames import do
from tests.jobs.sockets import Headers, Socket, bearer, headers_of, play
from tests.personas import EVERYBODY, Personas

pytestmark = pytest.mark.django_db(transaction=True)


class EchoingAgent:
    """An agent whose shell shows what is entered, and what the test adds."""

    def __init__(self) -> None:
        self.received: list[Any] = []
        self.output: asyncio.Queue[Frame] = asyncio.Queue()
        self.taken = 0
        self.is_closed = False

    async def begin(self, name: str, **parameters: Any) -> None:
        self.received.append({"call": name, **parameters})
        await self.output.put(of_document({"t": "session", "session": "abc", "from": 0}))

    async def send(self, frame: Frame, seconds: float = 0.0) -> None:
        self.received.append(frame.payload if frame.kind is Kind.BYTES else frame.document())
        if frame.kind is Kind.BYTES:
            await self.output.put(frame)

    async def receive(self, seconds: float | None = None) -> Frame:
        frame = await self.output.get()
        self.taken += 1
        return frame

    async def close(self) -> None:
        self.is_closed = True


@pytest.fixture
def agent(monkeypatch: pytest.MonkeyPatch) -> EchoingAgent:
    fake = EchoingAgent()

    async def connect(ref: Any, replica: str) -> EchoingAgent:
        return fake

    monkeypatch.setattr(consumer, "connect_async", connect)
    return fake


@pytest.fixture
def job(people: Personas) -> Job:
    job = make_job(people.namespace, people.owner, attempt=1, state=JobState.RUNNING)
    attempt = make_attempt(job)
    for number, state in enumerate((ReplicaState.REGISTERED, ReplicaState.EXITED)):
        Replica.objects.create(attempt=attempt, name=f"trainer-{number}", role="trainer", index=number, state=state)
    return job


class Terminal(Socket):
    def __init__(self, headers: Headers, job: Any, **query: Any) -> None:
        super().__init__(headers, "/ws/v1/exec")
        text = "&".join(f"{name}={value}" for name, value in {"job": job, **query}.items())
        self._link.scope["query_string"] = text.encode()

    async def next(self) -> Any:
        """Return the next message, output, or close code; heartbeats are left out."""
        while True:
            message = await self._link.receive_output(timeout=10)
            if message["type"] == "websocket.close":
                return int(message["code"])
            if message.get("bytes") is not None:
                return message["bytes"]
            frame = json.loads(message["text"])
            if frame["t"] != "hb":
                return frame

    async def enter(self, data: bytes) -> None:
        await self._link.send_input({"type": "websocket.receive", "bytes": data})

    async def began(self) -> None:
        assert (await self.next())["t"] == "ready"
        assert (await self.next())["t"] == "session"

    async def outcome(self) -> str:
        """Return "ready", or the code of the refusal and of the close."""
        first = await self.next()
        if isinstance(first, int):
            return str(first)
        return "ready" if first["t"] == "ready" else f"{first['code']}:{await self.next()}"


# The outcome for each: admin, owner, developer, viewer, stranger, nobody; then a disabled account; then tokens: revoked
# and expired ones, of a disabled owner, of an owner without the scope, of an owner with it, of a viewer with it.
EXPECTED = (
    "ready ready ready forbidden:4400 not_found:4400 4401 4401 4401 4401 4401 forbidden:4400 ready forbidden:4400"
)


def callers(people: Personas) -> list[Headers]:
    secrets = (
        make_token(people.owner, revoked=LONG_AGO),
        make_token(people.owner, expires=LONG_AGO),
        make_token(people.disabled),
        make_token(people.owner, scopes=["namespace:read", "job:read", "job:write"]),
        make_token(people.owner, scopes=["namespace:read", "job:read", "job:exec"]),
        make_token(people.viewer, scopes=["namespace:read", "job:read", "job:exec"]),
    )
    return [*(headers_of(people.client(name)) for name in (*EVERYBODY, "disabled")), *map(bearer, secrets)]


@pytest.mark.invariant("Only a developer or owner of the namespace opens a terminal, by session or with job:exec.")
def test_everybody_gets_what_the_table_says(people: Personas, job: Job, agent: EchoingAgent) -> None:
    outcomes: list[str] = []
    everybody = callers(people)

    async def scenario() -> None:
        for headers in everybody:
            terminal = Terminal(headers, job.pk)
            await terminal.open()
            outcomes.append(await terminal.outcome())
            await terminal.leave()

    play(scenario)
    assert " ".join(outcomes) == EXPECTED


@pytest.mark.parametrize(
    ("query", "outcome"),
    [
        ({"replica": "trainer-0"}, "ready"),
        ({"replica": "trainer-1"}, "conflict:4400"),
        ({"replica": "trainer-7"}, "not_found:4400"),
        ({"replica": "../trainer-0"}, "validation_failed:4400"),
        ({"session": "../x"}, "validation_failed:4400"),
        ({"after": "1e9"}, "validation_failed:4400"),
        ({"job": "00000000-0000-4000-8000-000000000000"}, "not_found:4400"),
        ({"job": "1"}, "validation_failed:4400"),
    ],
)
def test_only_a_running_replica_of_the_job_has_terminals(
    people: Personas, job: Job, agent: EchoingAgent, query: dict[str, str], outcome: str
) -> None:
    headers = headers_of(people.client("owner"))

    async def scenario() -> None:
        terminal = Terminal(headers, **{"job": job.pk, **query})
        await terminal.open()
        assert await terminal.outcome() == outcome
        await terminal.leave()

    play(scenario)


def test_a_page_of_another_origin_opens_no_terminal(people: Personas, job: Job, agent: EchoingAgent) -> None:
    headers = headers_of(people.client("owner"), origin=b"http://evil.example")

    async def scenario() -> None:
        terminal = Terminal(headers, job.pk)
        await terminal.open()
        assert await terminal.next() == 4403
        await terminal.leave()

    play(scenario)
    assert agent.received == []


@pytest.mark.invariant("A lost right to a terminal closes its socket within 5 seconds.")
@pytest.mark.parametrize("notice", [True, False])
def test_a_lost_right_closes_the_terminal(
    people: Personas, job: Job, agent: EchoingAgent, notice: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert consumer.ExecConsumer.recheck_seconds <= 4
    if not notice:
        monkeypatch.setattr(consumer.ExecConsumer, "recheck_seconds", 0.1)
    headers = headers_of(people.client("developer"))
    named = {"namespace_name": "team", "username": people.developer.username}
    demote = partial(services.set_member, actor=people.owner, role=Role.VIEWER, **named)
    silently = Membership.objects.filter(user=people.developer)

    async def scenario() -> None:
        terminal = Terminal(headers, job.pk)
        await terminal.open()
        await terminal.began()
        await do(demote if notice else partial(silently.update, role=Role.VIEWER))
        assert (await terminal.next())["code"] == "forbidden"
        assert await terminal.next() == 4410
        await terminal.leave()

    play(scenario)
    assert agent.is_closed


def test_a_revoked_token_closes_its_terminal(people: Personas, job: Job, agent: EchoingAgent) -> None:
    token, secret = tokens.create_token(actor=people.owner, name="program")

    async def scenario() -> None:
        terminal = Terminal(bearer(secret), job.pk)
        await terminal.open()
        await terminal.began()
        await do(partial(tokens.revoke_token, actor=people.owner, token_id=str(token.pk)))
        assert await terminal.next() == 4401
        await terminal.leave()

    play(scenario)


@pytest.mark.invariant("Start and end of a terminal are in the audit log, and its input is not.")
def test_a_visit_is_in_the_audit_log_without_its_input(people: Personas, job: Job, agent: EchoingAgent) -> None:
    headers = headers_of(people.client("developer"))

    async def scenario() -> None:
        terminal = Terminal(headers, job.pk, session="abc", after=7, columns=100)
        await terminal.open()
        await terminal.began()
        await terminal.enter(b"my secret\n")
        assert await terminal.next() == b"my secret\n"
        await terminal.ask(op="resize", columns=9, rows=5, extra="x")
        await agent.output.put(of_document({"t": "exit", "code": 3}))
        assert (await terminal.next())["code"] == 3
        assert await terminal.next() == 1000
        await terminal.leave()

    play(scenario)
    assert agent.received == [
        {"call": "terminal", "session": "abc", "after": 7, "columns": 100, "rows": 24},
        b"my secret\n",
        {"op": "resize", "columns": 9, "rows": 5},
    ]
    opened, closed = AuditEntry.objects.filter(action__startswith="terminal.").order_by("pk")
    assert (opened.action, closed.action) == ("terminal.open", "terminal.close")
    assert (opened.actor, opened.namespace, opened.detail["replica"]) == (people.developer, "team", "trainer-0")
    assert (closed.detail["exit_code"], closed.detail["bytes"]) == (3, 10)
    assert "secret" not in json.dumps([opened.detail, closed.detail])
    assert not TerminalRecording.objects.exists()


@pytest.mark.invariant("A flood in a terminal waits for the reader and does not fill the web process.")
def test_a_flood_waits_for_the_acknowledgement_of_the_page(people: Personas, job: Job, agent: EchoingAgent) -> None:
    headers = headers_of(people.client("developer"))
    piece = bytes(64 * 1024)
    ahead = consumer.UNACKNOWLEDGED // len(piece) + 1

    async def scenario() -> None:
        terminal = Terminal(headers, job.pk, ack=1)
        await terminal.open()
        await terminal.began()
        for _ in range(3 * ahead):
            await agent.output.put(Frame(Kind.BYTES, piece))
        for _ in range(ahead):
            assert await terminal.next() == piece
        assert await terminal.silent()
        assert agent.taken <= ahead + 2
        await terminal.ask(op="ack", bytes=len(piece))
        assert await terminal.next() == piece
        assert await terminal.silent()
        await terminal.leave()

    play(scenario)


@pytest.mark.parametrize("message", ["no json", "[]", '{"op": "exec"}', '{"op": ["end"]}', "{" * 5000])
def test_a_message_that_is_none_ends_the_socket(people: Personas, job: Job, agent: EchoingAgent, message: str) -> None:
    headers = headers_of(people.client("developer"))

    async def scenario() -> None:
        terminal = Terminal(headers, job.pk)
        await terminal.open()
        await terminal.began()
        await terminal.send(message)
        assert (await terminal.next())["code"] == "validation_failed"
        assert await terminal.next() == 4400
        await terminal.leave()

    play(scenario)


def test_a_lost_agent_closes_the_socket_so_that_the_page_returns(
    people: Personas, job: Job, agent: EchoingAgent, monkeypatch: pytest.MonkeyPatch
) -> None:
    headers = headers_of(people.client("developer"))

    async def lost(seconds: float | None = None) -> Frame:
        raise ControlError("gone")

    async def scenario() -> None:
        monkeypatch.setattr(agent, "receive", lost)
        terminal = Terminal(headers, job.pk)
        await terminal.open()
        assert (await terminal.next())["t"] == "ready"
        assert (await terminal.next())["code"] == "unreachable"
        assert await terminal.next() == 4411
        await terminal.leave()

    play(scenario)


def test_a_command_is_named_by_the_first_message(people: Personas, job: Job, agent: EchoingAgent) -> None:
    services.set_terminal_recording(actor=people.owner, namespace_name="team", record=True)
    headers = headers_of(people.client("developer"))

    async def scenario() -> None:
        terminal = Terminal(headers, job.pk, command=1)
        await terminal.open()
        assert (await terminal.next())["t"] == "ready"
        await terminal.ask(command=["ls", "-l"], call="terminal")
        await terminal.next()
        await terminal.leave()

    play(scenario)
    assert agent.received == [{"call": "exec", "command": ["ls", "-l"]}]
    assert AuditEntry.objects.get(action="exec.open").detail["recorded"] is False


def test_an_impersonated_account_has_no_terminal(people: Personas, job: Job, agent: EchoingAgent) -> None:
    browser = people.client("owner")
    session = browser.session
    session["looking"] = people.admin.pk
    session.save()
    headers = headers_of(browser)

    async def scenario() -> None:
        terminal = Terminal(headers, job.pk)
        await terminal.open()
        assert await terminal.outcome() == "forbidden:4400"
        await terminal.leave()

    play(scenario)


# --- Recordings ------------------------------------------------------------------------------------------------------
def recorded(people: Personas, job: Job, agent: EchoingAgent) -> TerminalRecording:
    """Record one visit that shows two halves of a character."""
    services.set_terminal_recording(actor=people.owner, namespace_name="team", record=True)
    headers = headers_of(people.client("developer"))

    async def scenario() -> None:
        terminal = Terminal(headers, job.pk, columns=100, rows=30)
        await terminal.open()
        assert (await terminal.next())["recorded"] is True
        await terminal.next()
        for half in ("é".encode()[:1], "é".encode()[1:]):
            await terminal.enter(half)
            await terminal.next()
        await terminal.leave()

    play(scenario)
    return TerminalRecording.objects.get()


def test_a_recording_is_an_asciicast_that_owners_read(people: Personas, job: Job, agent: EchoingAgent) -> None:
    recording = recorded(people, job, agent)
    owner: Client = people.client("owner")
    (listed,) = owner.get(f"/api/v1/jobs/{job.pk}/recordings").json()["recordings"]
    assert (listed["id"], listed["person"], listed["replica"]) == (str(recording.pk), "developer", "trainer-0")
    answer = owner.get(f"/api/v1/jobs/{job.pk}/recordings/{recording.pk}")
    header, *events = map(json.loads, whole(answer).decode().splitlines())
    assert (header["version"], header["width"], header["height"]) == (2, 100, 30)
    assert [event[1:] for event in events] == [["o", "é"]]
    assert recording.ended is not None
    assert recording.ended <= now()


@pytest.mark.parametrize(
    ("name", "status"),
    [("admin", 200), ("owner", 200), ("developer", 403), ("viewer", 403), ("stranger", 404), ("nobody", 401)],
)
def test_only_owners_read_recordings(people: Personas, job: Job, agent: EchoingAgent, name: str, status: int) -> None:
    recording = recorded(people, job, agent)
    browser = people.client(name)
    paths = (f"/api/v1/jobs/{job.pk}/recordings", f"/api/v1/jobs/{job.pk}/recordings/{recording.pk}")
    assert [browser.get(path).status_code for path in paths] == [status, status]
