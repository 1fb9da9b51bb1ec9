"""A shard behind a socket: the requests of each connection become events, releases become replies."""

from __future__ import annotations

import contextlib
import logging
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from runtime.checkpoint.progress import Position, Progress
from runtime.contract import TRAINER, Member
from runtime.errors import Refused, WireError
from runtime.protocol import bf16
from runtime.protocol.connection import Block, Message
from runtime.protocol.frames import DType, Header, Op
from runtime.protocol.server import Server, reply_head
from runtime.protocol.shared import NOT_SHARED, Segment
from runtime.pserver import desk, parcels
from runtime.pserver.comeback import Offer, Recovered, Standing
from runtime.pserver.declaration import Declaration
from runtime.pserver.editions import Edition, Editions
from runtime.pserver.numbers import WIRE_TYPES, all_finite
from runtime.pserver.rate import Rate
from runtime.pserver.room import WITHOUT_LIMIT, Room
from runtime.pserver.shard import CLOCK, REFUSALS, Outcome, Release, Releases, Shard, Step, Ticket, Who
from runtime.pserver.tables import Pushed

# A trainer may connect before this server has heard that it is a member.
JOIN_SECONDS = 15.0
# A waiting trainer hears this often that the server lives.
WAITING_SECONDS = 3.0
LOG_SECONDS = 5.0

Array = NDArray[Any]
log = logging.getLogger("pserver")


class ShardServer:
    """Serves one shard. ``job`` fences connections of other attempts.

    ``room`` is the memory for it. ``on_rate`` is called now and then with the shard's version and the records per
    second that it takes.
    ``on_values`` is called once there are values, with how they came back where they had been lost and before anybody
    trains on them; ``on_lost`` where they cannot come back, with why.
    """

    def __init__(
        self,
        shard: Shard,
        job: int = 0,
        clock: Callable[[], float] = time.monotonic,
        on_rate: Callable[[int, float], object] = lambda version, rate: None,
        room: Room = WITHOUT_LIMIT,
        on_values: Callable[[Recovered | None], object] = lambda recovered: None,
        on_lost: Callable[[str], object] = lambda why: None,
    ) -> None:
        self.shard = shard
        self.room = room
        self._on_rate = on_rate
        self._rate = Rate()
        self.changed = threading.Condition()
        self._clock = clock
        self._on_values = on_values
        self._on_lost = on_lost
        self._told = shard.ready
        self._released: dict[Ticket, Release] = {}
        self._seen: dict[int, int] = {}  # index of every trainer that ever was a member, by incarnation
        self._logged = (0, clock())
        self.editions = Editions()
        self._parameters: Segment | None = None  # where trainers of this host read them
        self._server = Server(lambda: _Session(self), job=job)

    @property
    def address(self) -> str:
        return self._server.address

    def start(self) -> None:
        self._server.start()
        log.info("listening on %s", self.address)

    def close(self) -> None:
        self._server.close()
        if self._parameters is not None:
            self._parameters.close()

    def fence(self, incarnation: int) -> None:
        """From now on refuse requests that are meant for another process than this one."""
        self._server.incarnation = incarnation

    # --- Members -----------------------------------------------------------------------------------------------------
    def change_members(self, members: Iterable[Member]) -> None:
        """Take the live processes of the attempt, as the agent tells them."""
        live = {member.index: member.incarnation for member in members if member.role == TRAINER}
        with self.changed:
            before = self.shard.live
            for index in sorted(before.keys() | live.keys()):
                _log_change(index, before.get(index), live.get(index))
            self._seen |= {incarnation: index for index, incarnation in live.items()}
            self._spread(self.shard.change_members(live))

    def who(self, incarnation: int) -> Who:
        """The trainer with this incarnation; waits a moment for its membership to become known here."""
        with self.changed:
            self.changed.wait_for(lambda: incarnation in self._seen, JOIN_SECONDS)
            if incarnation not in self._seen:
                raise Refused("fenced", "This process is no member of the job; it must register before it connects.")
            return Who(self._seen[incarnation], incarnation)

    # --- Events ------------------------------------------------------------------------------------------------------
    def ask(self, event: Callable[[Ticket], Releases], waiting: Callable[[], None]) -> Release:
        """Run an event of the shard and wait for the release of its ticket. Raises Refused."""
        ticket = object()
        with self.changed:
            self._spread(event(ticket))
        while (release := self._take(ticket)) is None:
            waiting()
        if release.outcome in REFUSALS:
            raise Refused(release.outcome, release.why)
        return release

    def _take(self, ticket: Ticket) -> Release | None:
        with self.changed:
            if not self.changed.wait_for(lambda: ticket in self._released, WAITING_SECONDS):
                self._spread(self.shard.tick(self._clock()))
            return self._released.pop(ticket, None)

    def _spread(self, releases: Releases) -> None:
        self._tell_of_values()
        self._released |= {release.ticket: release for release in releases}
        self._log_version()
        if (rate := self._rate.take(self.shard.records, self._clock())) is not None:
            self._on_rate(self.shard.version, rate)
        self.changed.notify_all()

    def _tell_of_values(self) -> None:
        if self._told or not (self.shard.ready or self.shard.lost):
            return
        self._told = True
        if self.shard.lost:
            self._on_lost(self.shard.lost)
        else:
            self._on_values(self.shard.recovered)

    def _log_version(self) -> None:
        version, at = self._logged
        now = self._clock()
        if self.shard.version > version and now - at >= LOG_SECONDS:
            rate = (self.shard.version - version) / (now - at)
            late = f", {self.shard.late} steps came too late and were dropped" if self.shard.late else ""
            log.info("version %d, %.0f a second, %d trainers%s", self.shard.version, rate, len(self.shard.live), late)
            self._logged = (self.shard.version, now)

    def now(self) -> float:
        return self._clock()

    # --- Memory ------------------------------------------------------------------------------------------------------
    def parameters(self) -> Segment:
        """The shared memory of clock and parameters, to which they move when it is first asked for. Raises OSError."""
        with self.changed:
            if self._parameters is None:
                shard = self.shard
                layout = [CLOCK, *((array.size, array.dtype.str) for array in shard.parameters)]
                self._parameters = Segment.create(layout, private=True)
                shard.move(self._parameters.arrays[0], self._parameters.arrays[1:])
            return self._parameters


class _Session:
    """One trainer's connection. Gradients are received into arrays of its own, which a waiting step refers to."""

    def __init__(self, server: ShardServer) -> None:
        self._server = server
        self._shard = server.shard
        self._received: dict[tuple[int, int], Array] = {}
        self._halves: dict[tuple[int, int], Array] = {}  # of blocks that came as bfloat16
        self._edition: Edition | None = None  # what the last reply refers to
        self._gradients: Sequence[Array] | None = None  # in memory that the trainer shares
        self._answers: Mapping[Op, Callable[[Message, Who, Callable[[], None]], Message]] = {
            Op.HELLO: self._hello,
            Op.DECLARE: self._declare,
            Op.RESEED_OFFER: self._offer,
            Op.RESEED: self._reseed,
            Op.INIT: self._initialise,
            Op.SHARE: self._share,
            Op.BEGIN_PASS: self._begin_pass,
            Op.END_PASS: self._end_pass,
            Op.PUSH: self._push,
            Op.PUSH_PULL: self._push,
            Op.PULL: self._pull,
            Op.ROWS_PULL: self._pull_rows,
        }

    def allocate(self, header: Header) -> memoryview:
        if parcels.carries_rows(header):
            return parcels.room(header)
        if not self._received:
            self._received = {
                (place.tensor, place.block): np.empty_like(parameter)
                for place, parameter in zip(self._shard.places, self._shard.parameters, strict=True)
            }
        array = self._received.get((header.tensor, header.offset))
        if array is None:
            raise WireError(f"Block {header.offset} of tensor {header.tensor} does not live on this server.")
        if header.dtype is DType.BF16 and array.dtype == np.float32:
            return self._halves.setdefault((header.tensor, header.offset), np.empty(array.size, "<u2")).data.cast("B")
        if header.dtype is not WIRE_TYPES[array.dtype.str]:
            raise WireError(f"Block {header.offset} of tensor {header.tensor} came as {header.dtype.name}.")
        return array.data.cast("B")

    def answer(self, request: Message, waiting: Callable[[], None]) -> Message:
        self._give_back()
        answer = self._answers.get(request.head.op)
        if answer is None:
            raise Refused("unknown_op", f"A parameter server does not answer {request.head.op.name}.")
        return answer(request, self._server.who(request.head.incarnation), waiting)

    def closed(self) -> None:
        """A step that waits stays: its trainer may ask again on another connection."""
        self._give_back()

    # --- Requests ----------------------------------------------------------------------------------------------------
    def _hello(self, request: Message, who: Who, waiting: Callable[[], None]) -> Message:
        return Message(reply_head(request.head, self._shard.version), {"ready": self._shard.ready})

    def _declare(self, request: Message, who: Who, waiting: Callable[[], None]) -> Message:
        declaration = _declaration(request.body)
        if why := self._server.room.refusal(declaration, self._shard.places_of(declaration)):
            raise Refused("too_large", why)
        now = self._server.now()
        release = self._server.ask(lambda ticket: self._shard.declare(ticket, who, declaration, now), waiting)
        return _reply(request, release)

    def _offer(self, request: Message, who: Who, waiting: Callable[[], None]) -> Message:
        declaration = _declaration(request.body["declaration"])
        offer, had = Offer(**request.body["offer"]), Progress.from_json(request.body["had"])
        now = self._server.now()
        release = self._server.ask(lambda ticket: self._shard.offer(ticket, who, declaration, offer, now, had), waiting)
        return _reply(request, release)

    def _reseed(self, request: Message, who: Who, waiting: Callable[[], None]) -> Message:
        values, version = self._numbers(request.blocks), request.head.version
        standing = Standing.from_json(request.body["standing"])
        event = partial(self._shard.reseed, who=who, version=version, values=values, standing=standing)
        return _reply(request, self._server.ask(event, waiting))

    def _initialise(self, request: Message, who: Who, waiting: Callable[[], None]) -> Message:
        values = self._numbers(request.blocks)
        digest = str(request.body.get("digest"))
        release = self._server.ask(lambda ticket: self._shard.initialise(ticket, who, digest, values), waiting)
        if release.outcome is Outcome.DONE:
            count, size = sum(value.size for value in values), sum(value.nbytes for value in values)
            log.info("trainer-%d gave the first values: %s parameters, %s bytes", who.index, f"{count:,}", f"{size:,}")
        return _reply(request, release)

    def _begin_pass(self, request: Message, who: Who, waiting: Callable[[], None]) -> Message:
        seq, number = request.head.seq, int(request.body["pass"])
        return _reply(request, self._server.ask(lambda t: self._shard.begin_pass(t, who, seq, number), waiting))

    def _end_pass(self, request: Message, who: Who, waiting: Callable[[], None]) -> Message:
        seq, number = request.head.seq, int(request.body["pass"])
        at = _position(request.body)
        return _reply(request, self._server.ask(lambda t: self._shard.end_pass(t, who, seq, number, at), waiting))

    def _push(self, request: Message, who: Who, waiting: Callable[[], None]) -> Message:
        samples = int(request.body["samples"])
        if samples < 0:
            raise Refused("bad_step", f"A step is of 0 samples or more, not {samples}.")
        step = Step(request.head.seq, samples, request.head.version, at=_position(request.body))
        if samples:
            step = replace(step, gradients=self._step(request), rows=self._rows(request, who))
        release = self._server.ask(lambda ticket: self._shard.push(ticket, who, step), waiting)
        if request.head.op is Op.PUSH:
            return _reply(request, release)
        self._wait_for_others(who, waiting)
        return self._with_values(request, release.outcome)

    def _pull(self, request: Message, who: Who, waiting: Callable[[], None]) -> Message:
        if not self._shard.ready:
            raise Refused(Outcome.NOT_READY, "The parameters have no values yet; declare them first.")
        self._wait_for_others(who, waiting)
        return self._with_values(request, Outcome.DONE)

    def _pull_rows(self, request: Message, who: Who, waiting: Callable[[], None]) -> Message:
        if not self._shard.ready:
            raise Refused(Outcome.NOT_READY, "The parameters have no values yet; declare them first.")
        self._wait_for_others(who, waiting)
        with self._server.changed:
            blocks = desk.pulled(self._shard.tables, request, who)
            return Message(reply_head(request.head, self._shard.version), {"outcome": Outcome.DONE}, blocks)

    def _rows(self, request: Message, who: Who) -> Pushed:
        """What a push carries for tables."""
        with self._server.changed:
            return desk.pushed(self._shard.tables, request, who)

    def _wait_for_others(self, who: Who, waiting: Callable[[], None]) -> None:
        """Wait until this trainer is not too far ahead; in most modes it never is."""
        with self._server.changed:
            wait = not self._shard.may_pull(who)
        if wait:
            self._server.ask(lambda ticket: self._shard.pull(ticket, who), waiting)

    def _share(self, request: Message, who: Who, waiting: Callable[[], None]) -> Message:
        """Map the trainer's gradients, and hand it the descriptor of the parameters."""
        self._gradients = None
        with contextlib.suppress(OSError, KeyError, TypeError, ValueError):
            declaration = self._shard.declaration
            arrays = Segment.open(request.body, declaration.layout if declaration else ()).arrays
            self._server.parameters().leave(str(request.body["handover"]))
            self._gradients = [place.of(arrays) for place in self._shard.places]
        return Message(reply_head(request.head), {"shared": self._gradients is not None})

    def _shared(self) -> Sequence[Array]:
        """The trainer's gradients. It has looked for NaN and infinity when it put them there."""
        if self._gradients is None:
            raise Refused(NOT_SHARED, "This connection shares no memory; send the numbers over it.")
        return self._gradients

    def _step(self, request: Message) -> Sequence[Array]:
        """The gradients of a push."""
        return self._shared() if request.body.get("shared") else self._numbers(request.blocks)

    def _numbers(self, blocks: Sequence[Block]) -> list[Array]:
        """The arrays of the blocks, which must be all of the shard's, in order and finite."""
        wanted = [(place.tensor, place.block) for place in self._shard.places]
        blocks = [block for block in blocks if not parcels.carries_rows(block[0])]
        came = [(header.tensor, header.offset) for header, _payload in blocks]
        if came != wanted:
            raise Refused("bad_step", f"{len(came)} blocks came where the {len(wanted)} of this server are due.")
        for header, _payload in blocks:
            if header.dtype is DType.BF16:
                key = header.tensor, header.offset
                bf16.widen(self._halves[key], self._received[key])
        return _finite([self._received[key] for key in wanted])

    def _with_values(self, request: Message, outcome: Outcome) -> Message:
        """The reply with the parameters as blocks; where memory is shared the trainer copies them itself."""
        if shared := bool(request.body.get("shared")):
            self._shared()
        with self._server.changed:
            version, standing = self._shard.version, self._shard.standing()
            if not shared:
                self._edition = self._server.editions.lend(version, self._shard.places, self._shard.parameters)
        body: dict[str, Any] = {"outcome": outcome, "values": True}
        if standing is not None:
            body["standing"] = standing.to_json()
        return Message(reply_head(request.head, version), body, self._edition.blocks if self._edition else ())

    def _give_back(self) -> None:
        """The last reply is sent: its values may be written over."""
        if self._edition is not None:
            with self._server.changed:
                self._server.editions.give_back(self._edition)
            self._edition = None


def _declaration(body: Mapping[str, Any]) -> Declaration:
    try:
        return Declaration.from_json(body)
    except (KeyError, TypeError, ValueError) as error:
        raise Refused("bad_declaration", f"The declaration cannot be read: {error}.") from None


def _position(body: Mapping[str, Any]) -> Position | None:
    return Position.from_json(body["at"]) if "at" in body else None


def _reply(request: Message, release: Release) -> Message:
    return Message(reply_head(request.head, release.version), {"outcome": release.outcome})


def _finite(arrays: list[Array]) -> list[Array]:
    if not all(all_finite(array) for array in arrays):
        raise Refused(Outcome.NOT_FINITE, "A gradient or value holds NaN or infinity; nothing was applied.")
    return arrays


def _log_change(index: int, before: int | None, after: int | None) -> None:
    if before == after:
        return
    if before is not None:
        log.info("trainer-%d left", index)
    if after is not None:
        log.info("trainer-%d joined", index)
