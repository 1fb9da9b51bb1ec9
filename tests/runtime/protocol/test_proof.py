"""Both ends of a connection prove that they hold the attempt's secret; peers without it get nothing and are counted."""

from __future__ import annotations

import errno
import fcntl
import hmac
import resource
import socket
import threading
from collections.abc import Callable, Iterator
from typing import Any, Protocol

import pytest

from runtime import contract
from runtime.errors import Lost, Refused, UsageError
from runtime.master.listener import Reception
from runtime.protocol import proof
from runtime.protocol.client import Client
from runtime.protocol.connection import Closed, Connection, Message
from runtime.protocol.frames import BAD_FRAME, HEADER_BYTES, Flag, Header, Op, pack, to_json
from runtime.protocol.proof import Challenge, Claim, Refusals, Unproven
from runtime.protocol.server import JsonSession, Server
from tests.waiting import until

OURS, THEIRS = b"0123456789abcdef" * 4, b"fedcba9876543210" * 4
HERE = "127.0.0.1:1"


# --- Pure ------------------------------------------------------------------------------------------------------------
def test_both_sides_of_one_secret_are_convinced() -> None:
    challenge, claim = Challenge(OURS, HERE), Claim(OURS, HERE)
    challenge.check(claim.prove(challenge.respond(claim.hello())))


@pytest.mark.invariant(
    "A process without the attempt's secret reads and changes nothing of the job's master and pservers."
)
@pytest.mark.parametrize(
    ("secret", "address"), [(THEIRS, HERE), (b"", HERE), (OURS, "127.0.0.1:2")], ids=["another", "none", "passed on"]
)
def test_a_client_gives_its_proof_to_no_server_of_another_secret_or_address(secret: bytes, address: str) -> None:
    claim = Claim(OURS, HERE)
    with pytest.raises(Unproven):
        claim.prove(Challenge(secret, address).respond(claim.hello()))


def answered(challenge: Challenge, claim: Claim) -> dict[str, str]:
    return claim.prove(challenge.respond(claim.hello()))


@pytest.mark.parametrize(
    "forged",
    [{}, {"proof": ""}, {"proof": 7}, {"proof": "zz"}, {"proof": "00" * 32}, {"nonce": "00" * 16}],
    ids=["nothing", "empty", "a number", "no hex", "a guess", "a nonce"],
)
def test_what_is_no_proof_is_refused(forged: dict[str, Any]) -> None:
    challenge = Challenge(OURS, HERE)
    challenge.respond(Claim(OURS, HERE).hello())
    with pytest.raises(Unproven):
        challenge.check(forged)


def test_a_proof_that_was_recorded_is_worth_nothing_on_another_connection() -> None:
    claim = Claim(OURS, HERE)
    recorded = answered(Challenge(OURS, HERE), claim)
    later = Challenge(OURS, HERE)
    later.respond(claim.hello())
    with pytest.raises(Unproven):
        later.check(recorded)


def test_a_server_s_own_proof_sent_back_to_it_is_refused() -> None:
    challenge = Challenge(OURS, HERE)
    answer = challenge.respond(Claim(OURS, HERE).hello())
    with pytest.raises(Unproven):
        challenge.check({"proof": answer["proof"]})


def test_a_proof_before_any_nonce_is_refused() -> None:
    with pytest.raises(Unproven):
        Challenge(OURS, HERE).check({"proof": ""})


def test_a_second_nonce_is_refused() -> None:
    challenge = Challenge(OURS, HERE)
    challenge.respond(Claim(OURS, HERE).hello())
    with pytest.raises(Unproven):
        challenge.respond(Claim(OURS, HERE).hello())


def test_proofs_are_compared_in_constant_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """No proof is accepted unless ``hmac.compare_digest`` accepts it."""
    monkeypatch.setattr(hmac, "compare_digest", lambda one, other: False)
    challenge, claim = Challenge(OURS, HERE), Claim(OURS, HERE)
    answer = challenge.respond(claim.hello())
    with pytest.raises(Unproven):
        claim.prove(answer)
    monkeypatch.undo()
    right = claim.prove(answer)
    monkeypatch.setattr(hmac, "compare_digest", lambda one, other: False)
    with pytest.raises(Unproven):
        challenge.check(right)


def test_refusals_are_counted_and_reported_once_a_minute() -> None:
    now, reported = [100.0], list[str]()
    refusals = Refusals(reported.append, lambda: now[0])
    for at in (100.0, 101.0, 159.9, 160.0, 161.0):
        now[0] = at
        refusals.add("10.0.0.7")
    assert refusals.count == 5
    assert [("10.0.0.7" in text, text.split("; ")[1].split()[0]) for text in reported] == [(True, "1"), (True, "4")]


def test_a_process_of_a_job_without_a_secret_does_not_begin() -> None:
    with pytest.raises(UsageError, match="REGATTA_WIRE_SECRET is not set"):
        proof.secret_of(contract.read({}))


def test_the_secret_is_in_no_text_form_of_the_environment() -> None:
    assert OURS.decode() not in repr(contract.read({contract.WIRE_SECRET: OURS.decode()}))


# --- On the wire -----------------------------------------------------------------------------------------------------
class Guarded(Protocol):
    """A server that accepts requests only from peers that hold the secret."""

    address: str
    refusals: Refusals
    asked: list[Op]


class ThreadedServer:
    """The server of parameter servers."""

    def __init__(self) -> None:
        self.asked: list[Op] = []
        self._server = Server(lambda: JsonSession(self._answer), secret=OURS)
        self.refusals = self._server.refusals
        self.address = self._server.address
        self._server.start()

    def _answer(self, head: Header, body: Any) -> dict[str, Any]:
        self.asked.append(head.op)
        return {"weights": 1}

    def close(self) -> None:
        self._server.close()


class PolledServer:
    """The server of the master."""

    def __init__(self) -> None:
        self.asked: list[Op] = []
        self._reception = Reception(secret=OURS)
        self.refusals = self._reception.refusals
        self.address = self._reception.address
        self._closing = False
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        while not self._closing:
            for call in self._reception.poll(5.0):
                self.asked.append(call.request.head.op)
                self._reception.answer(call, {"weights": 1})

    def close(self) -> None:
        self._closing = True
        self._reception.wake()
        self._thread.join()
        self._reception.close()


def set_in_both(monkeypatch: pytest.MonkeyPatch, name: str, value: float) -> None:
    for module in ("runtime.protocol.peer_proof", "runtime.master.listener"):
        monkeypatch.setattr(f"{module}.{name}", value)


@pytest.fixture(params=[ThreadedServer, PolledServer], ids=["threads", "polled"])
def guarded(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[Guarded]:
    set_in_both(monkeypatch, "PAUSE_SECONDS", 0.05)
    running = request.param()
    yield running
    running.close()


def connected(address: str) -> Connection:
    host, _, port = address.rpartition(":")
    return Connection(socket.create_connection((host, int(port)), timeout=5))


def hello(body: dict[str, Any], op: Op = Op.HELLO) -> Message:
    return Message(Header(op), body)


def refusal(link: Connection) -> str:
    """The code with which the server ends the connection."""
    answer = link.receive(5)
    with pytest.raises(Closed):
        link.receive(5)
    return str(answer.body["code"])


def test_a_peer_with_the_secret_is_answered(guarded: Guarded) -> None:
    client = Client(guarded.address, secret=OURS)
    assert [client.call(Op.STATUS) for _ in range(3)] == [{"weights": 1}] * 3
    assert guarded.refusals.count == 0
    client.close()


@pytest.mark.invariant(
    "A process without the attempt's secret reads and changes nothing of the job's master and pservers."
)
@pytest.mark.parametrize("op", [Op.PULL, Op.PUSH, Op.DECLARE, Op.TASK_GET, Op.SHARE, Op.SAVE_REQUEST])
def test_a_request_without_proof_reaches_no_handler(guarded: Guarded, op: Op) -> None:
    stranger = connected(guarded.address)
    stranger.send(hello({}, op), 5)
    assert refusal(stranger) == proof.UNPROVEN
    assert (guarded.asked, guarded.refusals.count) == ([], 1)


def test_a_nested_body_without_proof_ends_only_its_own_connection(guarded: Guarded) -> None:
    stranger = connected(guarded.address)
    nested = b"[" * proof.HELLO_BYTES
    head = Header(Op.HELLO)
    stranger.send_some([memoryview(pack(head._replace(flags=head.flags | Flag.LAST), nested) + nested)])
    assert refusal(stranger) == BAD_FRAME
    client = Client(guarded.address, secret=OURS)
    assert client.call(Op.STATUS) == {"weights": 1}
    client.close()


def test_a_request_behind_a_nonce_reaches_nobody(guarded: Guarded) -> None:
    stranger = connected(guarded.address)
    stranger.send(hello(Claim(b"", guarded.address).hello()), 5)
    stranger.send(hello({}, Op.PULL), 5)
    stranger.receive(5)
    assert refusal(stranger) == proof.UNPROVEN
    assert (guarded.asked, guarded.refusals.count) == ([], 1)


def test_a_wrong_proof_ends_the_connection_and_is_counted(guarded: Guarded) -> None:
    stranger = connected(guarded.address)
    stranger.send(hello(Claim(b"", guarded.address).hello()), 5)
    stranger.receive(5)
    stranger.send(hello({"proof": "00" * 32}), 5)
    assert refusal(stranger) == proof.UNPROVEN
    assert guarded.refusals.count == 1


def test_no_connection_has_a_second_try(guarded: Guarded) -> None:
    stranger, claim = connected(guarded.address), Claim(OURS, guarded.address)
    stranger.send(hello(claim.hello()), 5)
    answer = stranger.receive(5)
    stranger.send(hello({"proof": "00" * 32}), 5)
    stranger.send(hello(claim.prove(answer.body)), 5)
    stranger.send(hello({}, Op.PULL), 5)
    assert refusal(stranger) == proof.UNPROVEN
    assert guarded.asked == []


def test_the_secret_of_another_attempt_is_refused_by_both_sides(guarded: Guarded) -> None:
    client = Client(guarded.address, name="parameter server 0", secret=THEIRS, deadline=0.3)
    with pytest.raises(Lost, match="did not prove that it belongs to this attempt"):
        client.call(Op.PULL)
    assert guarded.asked == []
    assert guarded.refusals.count > 0


def test_a_proof_that_was_recorded_opens_no_second_connection(guarded: Guarded) -> None:
    first, claim = connected(guarded.address), Claim(OURS, guarded.address)
    first.send(hello(claim.hello()), 5)
    recorded = claim.prove(first.receive(5).body)
    first.send(hello(recorded), 5)
    second = connected(guarded.address)
    second.send(hello(claim.hello()), 5)
    second.receive(5)
    second.send(hello(recorded), 5)
    assert refusal(second) == proof.UNPROVEN


def test_a_large_frame_before_the_proof_is_not_received(guarded: Guarded) -> None:
    stranger = connected(guarded.address)
    payload = to_json({"nonce": "0" * 5000})
    stranger.send_some([memoryview(pack(Header(Op.HELLO)._replace(flags=Header(Op.HELLO).flags | 4), payload))])
    assert refusal(stranger) in (proof.UNPROVEN, "bad_frame")
    assert guarded.refusals.count == 1


def test_a_connection_without_data_is_not_counted(guarded: Guarded) -> None:
    connected(guarded.address).close()
    client = Client(guarded.address, secret=OURS)
    client.call(Op.STATUS)
    client.close()
    assert guarded.refusals.count == 0


def test_silent_connections_do_not_block_peers_with_the_secret(
    guarded: Guarded, monkeypatch: pytest.MonkeyPatch
) -> None:
    set_in_both(monkeypatch, "UNPROVEN_LIMIT", 3)
    silent = [connected(guarded.address) for _ in range(8)]
    client = Client(guarded.address, secret=OURS)
    assert client.call(Op.STATUS) == {"weights": 1}
    with pytest.raises(Closed):
        silent[0].receive(5)
    client.close()
    for link in silent:
        link.close()


def test_a_peer_without_proof_is_disconnected_and_counted(guarded: Guarded, monkeypatch: pytest.MonkeyPatch) -> None:
    set_in_both(monkeypatch, "PROOF_SECONDS", 0.1)
    silent = connected(guarded.address)
    with pytest.raises((Closed, Refused)):
        while silent.receive(5):
            pass
    assert guarded.refusals.count == 1


class ForeignListener:
    """Listens on a lost server's port, and records what clients send."""

    def __init__(self) -> None:
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.address = f"127.0.0.1:{self._listener.getsockname()[1]}"
        self.came: list[Message] = []
        threading.Thread(target=self._run, daemon=True).start()

    def _run(self) -> None:
        while True:
            try:
                link = Connection(self._listener.accept()[0])
                self.came.append(link.receive(5))
                link.send(Message(self.came[-1].head, {"nonce": "00" * 16, "proof": "00" * 32}), 5)
                self.came.append(link.receive(5))
            except Closed:
                continue
            except OSError:
                return

    def close(self) -> None:
        self._listener.close()


def test_a_foreign_peer_on_the_port_of_a_server_gets_only_nonces() -> None:
    stranger = ForeignListener()
    client = Client(stranger.address, secret=OURS, deadline=0.3)
    with pytest.raises(Lost):
        client.call(Op.PUSH, {"gradients": "secret"})
    assert stranger.came
    assert {tuple(message.body) for message in stranger.came} == {("nonce",)}
    stranger.close()


def test_a_client_of_a_server_that_asks_for_no_proof_sends_it_nothing() -> None:
    unguarded = Server(lambda: JsonSession(lambda head, body: {"weights": 1}))
    unguarded.start()
    client = Client(unguarded.address, secret=OURS, deadline=0.3)
    with pytest.raises(Lost):
        client.call(Op.PUSH)
    unguarded.close()


def test_connecting_beforehand_to_a_server_that_is_gone_is_no_error() -> None:
    gone = socket.create_server(("127.0.0.1", 0))
    address = f"127.0.0.1:{gone.getsockname()[1]}"
    gone.close()
    Client(address, secret=OURS).connect()


# --- Shortage --------------------------------------------------------------------------------------------------------
class RunsShort:
    """A listening socket that cannot accept the first times, as if descriptors were used up."""

    def __init__(self, listener: socket.socket, errors: list[Exception]) -> None:
        self._listener, self._errors = listener, errors

    def accept(self) -> tuple[socket.socket, Any]:
        if self._errors:
            raise self._errors.pop()
        return self._listener.accept()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._listener, name)


SHORTAGES = [OSError(errno.EMFILE, "too many"), OSError(errno.ENFILE, "too many"), OSError(errno.ENOBUFS, "full")]


@pytest.mark.invariant("A server accepts connections again after descriptors or threads ran out.")
def test_an_acceptor_goes_on_after_descriptors_were_used_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("runtime.protocol.shortage.PAUSE_SECONDS", 0.01)
    running = Server(lambda: JsonSession(lambda head, body: {}))
    monkeypatch.setattr(running, "_listener", RunsShort(running._listener, [ConnectionAbortedError(), *SHORTAGES]))
    running.start()
    assert Client(running.address).call(Op.STATUS) == {}
    running.close()


@pytest.mark.invariant("A server accepts connections again after descriptors or threads ran out.")
def test_an_acceptor_goes_on_after_a_thread_could_not_be_started(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("runtime.protocol.shortage.PAUSE_SECONDS", 0.01)
    running = Server(lambda: JsonSession(lambda head, body: {}))
    running.start()
    begin: Callable[[threading.Thread], None] = threading.Thread.start
    failures = [True, True]

    def start(thread: threading.Thread) -> None:
        if thread.name == "server-connection" and failures:
            failures.pop()
            raise RuntimeError("can't start new thread")
        begin(thread)

    monkeypatch.setattr(threading.Thread, "start", start)
    assert Client(running.address).call(Op.STATUS) == {}
    assert len(running._connections) == 1
    running.close()


def test_an_acceptor_goes_on_after_a_connection_could_not_be_set_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("runtime.protocol.shortage.PAUSE_SECONDS", 0.01)
    running = Server(lambda: JsonSession(lambda head, body: {}))
    failures = [MemoryError(), OSError(errno.ENOBUFS, "full")]

    def connection(link: socket.socket, leaving: Callable[[], bool]) -> Connection:
        if failures:
            raise failures.pop()
        return Connection(link, leaving)

    monkeypatch.setattr("runtime.protocol.server.Connection", connection)
    running.start()
    assert Client(running.address).call(Op.STATUS) == {}
    running.close()


class CannotBeSentTo:
    """A connection whose ``send_aside`` fails, for lack of memory. Counts the tries."""

    def __init__(self) -> None:
        self.tries = threading.Semaphore(0)

    def send_aside(self, message: Message) -> None:
        self.tries.release()
        raise MemoryError

    def abort(self) -> None:
        """Nothing is open."""


def test_wait_replies_continue_after_one_could_not_be_sent(monkeypatch: pytest.MonkeyPatch) -> None:
    running, unlucky = Server(lambda: JsonSession(lambda head, body: {}), waiting=0.02), CannotBeSentTo()
    monkeypatch.setattr(running._wait_replies, "_requests", {unlucky: (Header(Op.STATUS), 0.0)})
    running.start()
    assert all(unlucky.tries.acquire(timeout=5) for _ in range(3))
    running.close()


# --- Peers that gave up while nobody accepted them -------------------------------------------------------------------
def give_up_at(address: str) -> None:
    """Begin a proof, as a trainer does, and disconnect before the answer."""
    link = connected(address)
    link.send(hello(Claim(OURS, address).hello()), 5)
    link.close()


def test_a_trainer_that_gave_up_on_a_standby_master_is_not_counted() -> None:
    reception = Reception(secret=OURS)
    give_up_at(reception.address)
    while not reception._callers:
        reception.poll(5.0)
    while reception._callers:
        reception.poll(5.0)
    assert reception.refusals.count == 0
    reception.close()


def test_a_trainer_that_gave_up_before_a_server_started_is_not_counted() -> None:
    running = Server(lambda: JsonSession(lambda head, body: {}), secret=OURS)
    give_up_at(running.address)
    running.start()
    client = Client(running.address, secret=OURS)
    client.call(Op.STATUS)
    client.close()
    until("both connections end", lambda: not running._connections)
    assert running.refusals.count == 0
    running.close()


def test_a_master_s_reception_goes_on_after_descriptors_were_used_up() -> None:
    now = [0.0]
    reception = Reception(clock=lambda: now[0])
    listener = reception._listener
    reception._listener = RunsShort(listener, list(SHORTAGES))  # type: ignore[assignment]
    reception._selector.unregister(listener)
    reception._selector.register(reception._listener, 1)
    link = socket.create_connection(listener.getsockname())
    for _ in SHORTAGES:
        reception.poll(1.0)
        assert reception.poll(0.0) == []
        now[0] += 1.0
    link.sendall(pack(Header(Op.STATUS)._replace(flags=Header(Op.STATUS).flags | 4), b""))
    calls = [call for _ in range(3) for call in reception.poll(1.0)]
    assert [call.request.head.op for call in calls] == [Op.STATUS]
    link.close()
    reception.close()


def test_a_reception_that_runs_short_is_not_woken_again_and_again() -> None:
    now = [0.0]
    reception = Reception(clock=lambda: now[0])
    listener, asked = reception._listener, list[Exception]([OSError(errno.EMFILE, "too many")] * 5)
    reception._listener = RunsShort(listener, asked)  # type: ignore[assignment]
    reception._selector.unregister(listener)
    reception._selector.register(reception._listener, 1)
    link = socket.create_connection(listener.getsockname())
    for _ in range(20):
        reception.poll(0.0)
    assert len(asked) == 4
    link.close()
    reception.close()


def test_wait_replies_need_no_low_descriptor() -> None:
    """``select`` supports no descriptor beyond 1,023, and a server may have 4,096 connections."""
    near, far = socket.socketpair()
    high = socket.socket(fileno=high_copy(near))
    link = Connection.__new__(Connection)
    link._link, link._sending = high, threading.Lock()
    link.send_aside(Message(Header(Op.WAIT)))
    assert len(far.recv(1000)) == HEADER_BYTES
    for one in (near, far, high):
        one.close()


def high_copy(link: socket.socket) -> int:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft < 2048:
        resource.setrlimit(resource.RLIMIT_NOFILE, (min(2048, hard), hard))
    return fcntl.fcntl(link.fileno(), fcntl.F_DUPFD_CLOEXEC, 1500)


def test_a_notice_on_a_closed_connection_is_dropped() -> None:
    near, far = socket.socketpair()
    link = Connection.__new__(Connection)
    link._link, link._sending = near, threading.Lock()
    near.close()
    link.send_aside(Message(Header(Op.WAIT)))
    far.close()
