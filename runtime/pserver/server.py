"""The network server of a shard: requests of each connection become events, releases become replies."""

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

from runtime.checkpoint.data_position import Position, Progress
from runtime.contract import TRAINER, Member
from runtime.errors import Refused, WireError
from runtime.messages import training as messages
from runtime.parameters import journal_layout, row_blocks
from runtime.parameters.array_blocks import WIRE_TYPES, all_finite
from runtime.parameters.declaration import BlockPlace, Declaration
from runtime.parameters.embedding_tables import Pushed
from runtime.parameters.messages import Offer, Outcome, Standing
from runtime.protocol import bf16
from runtime.protocol.connection import Block, Message
from runtime.protocol.frames import DType, Header, Op
from runtime.protocol.proof import Refusals
from runtime.protocol.server import Server, reply_head
from runtime.protocol.shared_memory import NOT_SHARED, Segment, Visit
from runtime.pserver import table_requests
from runtime.pserver.eager_update import Coming, Draft
from runtime.pserver.memory_budget import WITHOUT_LIMIT, MemoryBudget
from runtime.pserver.published_versions import Edition
from runtime.pserver.recovery import Recovered
from runtime.pserver.shard import REFUSALS, Release, Releases, Shard, Step, Ticket, TrainerId
from runtime.pserver.throughput import Rate

# A trainer may connect before this server has received its membership.
JOIN_SECONDS = 15.0
# The interval at which a waiting shard is ticked.
TICK_SECONDS = 3.0
LOG_SECONDS = 5.0

# The operations that carry gradients.
_STEPS = (Op.PUSH, Op.PUSH_PULL)

Array = NDArray[Any]
log = logging.getLogger("pserver")


class ShardServer:
    """Serves one shard. ``job`` fences connections of other attempts, whose peers do not hold the ``secret``.

    ``budget`` is the memory for it. ``on_rate`` is called repeatedly with the shard's version and its records per
    second. ``on_values`` is called once there are values and before trainers train on them, with how they were restored
    if they had been lost. ``on_lost`` is called with the reason if they cannot be restored.
    """

    def __init__(
        self,
        shard: Shard,
        job: int = 0,
        clock: Callable[[], float] = time.monotonic,
        on_rate: Callable[[int, float], object] = lambda version, rate: None,
        budget: MemoryBudget = WITHOUT_LIMIT,
        on_values: Callable[[Recovered | None], object] = lambda recovered: None,
        on_lost: Callable[[str], object] = lambda why: None,
        secret: bytes = b"",
    ) -> None:
        self.shard = shard
        self.secret = secret
        self.budget = budget
        self._on_rate = on_rate
        self._rate = Rate()
        self.changed = threading.Condition()
        self._clock = clock
        self._on_values = on_values
        self._on_lost = on_lost
        self._reported = shard.ready
        self._loss_reported = False
        self._waiting: set[Ticket] = set()  # tickets of requests without a reply
        self._released: dict[Ticket, Release] = {}
        self._seen: dict[int, int] = {}  # the index of every trainer that was ever a member, by incarnation
        self._logged = (0, clock())
        self._parameters: Segment | None = None  # the shared memory that trainers of this host read
        self._server = Server(lambda: _Session(self), job=job, secret=secret)

    @property
    def address(self) -> str:
        return self._server.address

    @property
    def refusals(self) -> Refusals:
        """Connections without proof."""
        return self._server.refusals

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
        """Set the live processes of the attempt, as reported by the agent."""
        live = {member.index: member.incarnation for member in members if member.role == TRAINER}
        with self.changed:
            before = self.shard.live
            for index in sorted(before.keys() | live.keys()):
                _log_change(index, before.get(index), live.get(index))
            self._seen |= {incarnation: index for index, incarnation in live.items()}
            self._spread(self.shard.change_members(live))

    def trainer(self, incarnation: int) -> TrainerId:
        """The trainer with this incarnation; waits up to ``JOIN_SECONDS`` for its membership."""
        with self.changed:
            self.changed.wait_for(lambda: incarnation in self._seen, JOIN_SECONDS)
            if incarnation not in self._seen:
                raise Refused("fenced", messages.PROCESS_NOT_A_MEMBER())
            return TrainerId(self._seen[incarnation], incarnation)

    # --- Events ------------------------------------------------------------------------------------------------------
    def ask(
        self,
        event: Callable[[Ticket], Releases],
        has_more: Callable[[], bool] = lambda: False,
        send_more: Callable[[], None] = lambda: None,
    ) -> Release:
        """Run an event of the shard and wait for the release of its ticket. Raises Refused.

        While it waits, ``send_more`` is called whenever there is something to send before the reply.
        """
        ticket = object()
        try:
            with self.changed:
                self._waiting.add(ticket)
                self._spread(event(ticket))
            while (release := self._take(ticket, has_more)) is None:
                if has_more():
                    send_more()
        except BaseException:
            # Its connection broke. The release may be here already, or come later.
            with self.changed:
                self._waiting.discard(ticket)
                self._released.pop(ticket, None)
            raise
        if release.outcome in REFUSALS:
            raise Refused(release.outcome, release.why)
        return release

    def _take(self, ticket: Ticket, has_more: Callable[[], bool]) -> Release | None:
        with self.changed:
            if not self.changed.wait_for(lambda: ticket in self._released or has_more(), TICK_SECONDS):
                self._spread(self.shard.tick(self._clock()))
            release = self._released.pop(ticket, None)
            if release is not None:
                self._waiting.discard(ticket)
            return release

    def _spread(self, releases: Releases) -> None:
        self._report_values()
        self._released |= {release.ticket: release for release in releases if release.ticket in self._waiting}
        self._log_version()
        if (rate := self._rate.take(self.shard.records, self._clock())) is not None:
            self._on_rate(self.shard.version, rate)
        self.changed.notify_all()

    def _report_values(self) -> None:
        if self.shard.lost and not self._loss_reported:
            self._reported = self._loss_reported = True
            self._on_lost(self.shard.lost)
        elif self.shard.ready and not self._reported:
            self._reported = True
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

    def known(self, incarnation: int) -> TrainerId | None:
        """The trainer with this incarnation, if it has been a member."""
        with self.changed:
            index = self._seen.get(incarnation)
            return None if index is None else TrainerId(index, incarnation)

    def expect(self, trainer: TrainerId, coming: Coming) -> None:
        """A trainer has begun to send a step."""
        with self.changed:
            self.shard.expect(trainer, coming)

    def arrive(self, coming: Coming) -> None:
        """Another block of a step has arrived."""
        with self.changed:
            coming.arrived += 1
            if self.shard.arrive(coming):
                self.changed.notify_all()

    # --- Memory ------------------------------------------------------------------------------------------------------
    def parameters(self, journalled: bool = False) -> Segment:
        """The shared memory of marks and parameters; the parameters move there at the first call.

        ``journalled``: with a journal, if there is memory for one. Raises OSError.
        """
        with self.changed:
            if self._parameters is None:
                journalled = journalled and self._journal_fits()
                sizes = [(array.size, array.dtype.str) for array in self.shard.parameters]
                layout = journal_layout.layout(sizes, journalled)
                self._parameters = Segment.create(layout, private=True)
                marks, *arrays = self._parameters.arrays
                self.shard.move(marks, arrays[: len(sizes)], arrays[len(sizes) :])
            return self._parameters

    def _journal_fits(self) -> bool:
        declaration = self.shard.declaration
        return declaration is not None and not self.budget.refusal(declaration, self.shard.places, journalled=True)


class _Session:
    """One trainer's connection. It receives gradients into its own arrays, to which a waiting step refers."""

    def __init__(self, server: ShardServer) -> None:
        self._server = server
        self._shard = server.shard
        self._received: dict[tuple[int, int], Array] = {}
        self._halves: dict[tuple[int, int], Array] = {}  # of blocks received as bfloat16
        self._staged: dict[tuple[int, int], Header] = {}  # blocks received before their push
        self._edition: Edition | None = None  # the edition of the last reply
        self._coming: Coming | None = None  # the step that is being received, while it is valid
        self._ahead: _Ahead | None = None  # sends blocks as they are made, if the trainer requests that
        self._gradients: Sequence[Array] | None = None  # in memory that the trainer shares
        self._answers: Mapping[Op, Callable[[Message, TrainerId], Message | None]] = {
            Op.HELLO: self._hello,
            Op.DECLARE: self._declare,
            Op.RESEED_OFFER: self._offer,
            Op.RESEED: self._reseed,
            Op.INIT: self._initialise,
            Op.SHARE: self._share,
            Op.STAGE: self._stage,
            Op.BEGIN_PASS: self._begin_pass,
            Op.END_PASS: self._end_pass,
            Op.PUSH: self._push,
            Op.PUSH_PULL: self._push,
            Op.PULL: self._pull,
            Op.ROWS_PULL: self._pull_rows,
        }

    def allocate(self, header: Header) -> memoryview:
        if row_blocks.carries_rows(header):
            return row_blocks.allocate(header)
        array = self._arrays().get((header.tensor, header.offset))
        if array is None:
            raise WireError(messages.BLOCK_MISPLACED(block=header.offset, tensor=header.tensor))
        if header.dtype is DType.BF16 and array.dtype == np.float32:
            return self._halves.setdefault((header.tensor, header.offset), np.empty(array.size, "<u2")).data.cast("B")
        if header.dtype is not WIRE_TYPES[array.dtype.str]:
            raise WireError(
                messages.BLOCK_TYPE_WRONG(block=header.offset, tensor=header.tensor, type=header.dtype.name)
            )
        return array.data.cast("B")

    def _arrays(self) -> Mapping[tuple[int, int], Array]:
        """Memory for the gradients of one step, allocated at the first use."""
        if not self._received:
            self._received = {
                (place.tensor, place.block): np.empty_like(parameter)
                for place, parameter in zip(self._shard.places, self._shard.parameters, strict=True)
            }
        return self._received

    def _array(self, place: BlockPlace) -> Array:
        return self._arrays()[place.tensor, place.block]

    def began(self, head: Header, body: Mapping[str, Any], send: Callable[[Message], None]) -> None:
        self._release_reply()
        self._coming = None
        samples = body.get("samples")
        trainer = self._server.known(head.incarnation)
        elsewhere = body.get("shared") or body.get("staged")  # part of it is sent in another way
        if head.op not in _STEPS or elsewhere or trainer is None or not isinstance(samples, int) or samples < 1:
            return
        places = self._shard.places
        gradients = [self._array(place) for place in places]
        self._coming = Coming(head.seq, samples, head.version, gradients, halved=bool(body.get("halved")))
        if head.op is Op.PUSH_PULL and body.get("ahead"):
            self._ahead = _Ahead(self._server, self._coming, head, bool(body.get("update")), send)
        self._server.expect(trainer, self._coming)

    def arrived(self, header: Header) -> None:
        """Widen and check a gradient while it is in the cache; ``_numbers`` refuses invalid ones."""
        coming = self._coming
        if coming is None or row_blocks.carries_rows(header):
            return
        key, places = (header.tensor, header.offset), self._shard.places
        number = coming.arrived
        if number == len(places) or key != (places[number].tensor, places[number].block):
            self._coming = None
            return
        if header.dtype is DType.BF16:
            bf16.widen(self._halves[key], self._received[key])
        if not all_finite(self._received[key]):
            self._coming = None
            return
        self._server.arrive(coming)
        if self._ahead is not None:
            self._ahead.send()

    def answer(self, request: Message) -> Message | None:
        answer = self._answers.get(request.head.op)
        if answer is None:
            raise Refused("unknown_op", messages.PSERVER_OPERATION_UNKNOWN(operation=request.head.op.name))
        return answer(request, self._server.trainer(request.head.incarnation))

    def closed(self) -> None:
        """Release the last reply. A waiting step stays: its trainer may repeat the request on another connection."""
        self._release_reply()
        self._coming = None

    # --- Requests ----------------------------------------------------------------------------------------------------
    def _hello(self, request: Message, trainer: TrainerId) -> Message:
        return Message(reply_head(request.head, self._shard.version), {"ready": self._shard.ready})

    def _declare(self, request: Message, trainer: TrainerId) -> Message:
        declaration = _declaration(request.body)
        if why := self._server.budget.refusal(declaration, self._shard.places_of(declaration)):
            raise Refused("too_large", why)
        self._allow_drafts(declaration)
        now = self._server.now()
        release = self._server.ask(lambda ticket: self._shard.declare(ticket, trainer, declaration, now))
        return _reply(request, release)

    def _allow_drafts(self, declaration: Declaration) -> None:
        places = self._shard.places_of(declaration)
        fits = self._server.budget.fits_drafts(declaration, places)
        with self._server.changed:
            self._shard.may_draft = fits
            self._shard.may_round = self._server.budget.fits_drafts(declaration, places, rounded=True)

    def _offer(self, request: Message, trainer: TrainerId) -> Message:
        declaration = _declaration(request.body["declaration"])
        offer, had = Offer(**request.body["offer"]), Progress.from_json(request.body["had"])
        self._allow_drafts(declaration)
        now = self._server.now()
        release = self._server.ask(lambda ticket: self._shard.offer(ticket, trainer, declaration, offer, now, had))
        return _reply(request, release)

    def _reseed(self, request: Message, trainer: TrainerId) -> Message:
        values, version = self._numbers(request.blocks), request.head.version
        standing = Standing.from_json(request.body["standing"])
        event = partial(self._shard.reseed, trainer=trainer, version=version, values=values, standing=standing)
        return _reply(request, self._server.ask(event))

    def _initialise(self, request: Message, trainer: TrainerId) -> Message:
        values = self._numbers(request.blocks)
        digest = str(request.body.get("digest"))
        release = self._server.ask(lambda ticket: self._shard.initialise(ticket, trainer, digest, values))
        if release.outcome is Outcome.DONE:
            count, size = sum(value.size for value in values), sum(value.nbytes for value in values)
            log.info(
                "trainer-%d gave the first values: %s parameters, %s bytes", trainer.index, f"{count:,}", f"{size:,}"
            )
        return _reply(request, release)

    def _begin_pass(self, request: Message, trainer: TrainerId) -> Message:
        seq, number = request.head.seq, int(request.body["pass"])
        return _reply(request, self._server.ask(lambda t: self._shard.begin_pass(t, trainer, seq, number)))

    def _end_pass(self, request: Message, trainer: TrainerId) -> Message:
        seq, number = request.head.seq, int(request.body["pass"])
        at = _position(request.body)
        return _reply(request, self._server.ask(lambda t: self._shard.end_pass(t, trainer, seq, number, at)))

    def _stage(self, request: Message, trainer: TrainerId) -> None:
        """Record blocks of a coming push; they are already in their place."""
        self._staged |= {(header.tensor, header.offset): header for header, _payload in request.blocks}

    def _push(self, request: Message, trainer: TrainerId) -> Message:
        staged, self._staged = self._staged, {}
        samples = int(request.body["samples"])
        if samples < 0:
            raise Refused("bad_step", messages.STEP_SAMPLES_NEGATIVE(count=samples))
        step = Step(request.head.seq, samples, request.head.version, at=_position(request.body))
        if samples:
            step = replace(step, gradients=self._step(request, staged), rows=self._rows(request, trainer))
        more = (self._ahead.has_more, self._ahead.send) if self._ahead else ()
        release = self._server.ask(lambda ticket: self._shard.push(ticket, trainer, step), *more)
        if request.head.op is Op.PUSH:
            return _reply(request, release)
        self._wait_for_others(trainer)
        return self._with_values(request, release.outcome)

    def _pull(self, request: Message, trainer: TrainerId) -> Message:
        if not self._shard.ready:
            raise Refused(Outcome.NOT_READY, messages.PARAMETERS_NOT_DECLARED())
        self._wait_for_others(trainer)
        return self._with_values(request, Outcome.DONE)

    def _pull_rows(self, request: Message, trainer: TrainerId) -> Message:
        if not self._shard.ready:
            raise Refused(Outcome.NOT_READY, messages.PARAMETERS_NOT_DECLARED())
        self._wait_for_others(trainer)
        with self._server.changed:
            blocks = table_requests.pulled(self._shard.tables, request, trainer)
            return Message(reply_head(request.head, self._shard.version), {"outcome": Outcome.DONE}, blocks)

    def _rows(self, request: Message, trainer: TrainerId) -> Pushed:
        """The rows of tables in a push."""
        with self._server.changed:
            return table_requests.pushed(self._shard.tables, request, trainer)

    def _wait_for_others(self, trainer: TrainerId) -> None:
        """Wait until this trainer is not too far ahead; in most modes it never is."""
        with self._server.changed:
            wait = not self._shard.may_pull(trainer)
        if wait:
            self._server.ask(lambda ticket: self._shard.pull(ticket, trainer))

    def _share(self, request: Message, trainer: TrainerId) -> Message:
        """Map the trainer's gradients, and send it the descriptor of the parameters."""
        self._gradients = None
        with contextlib.suppress(OSError, KeyError, TypeError, ValueError):
            declaration = self._shard.declaration
            with contextlib.closing(Visit(str(request.body["handover"]))) as visit:
                where = {**request.body, "process": visit.process}
                arrays = Segment.open(where, declaration.layout if declaration else ()).arrays
                segment = self._server.parameters(bool(request.body.get("journal")) and self._shard.in_step)
                segment.leave(visit, self._server.secret)
            self._gradients = [place.of(arrays) for place in self._shard.places]
        answer = {"shared": self._gradients is not None, "journal": self._shard.journalled}
        return Message(reply_head(request.head), answer)

    def _shared(self) -> Sequence[Array]:
        """The trainer's gradients. It has checked them for NaN and infinity."""
        if self._gradients is None:
            raise Refused(NOT_SHARED, messages.NO_SHARED_MEMORY())
        return self._gradients

    def _step(self, request: Message, staged: Mapping[tuple[int, int], Header]) -> Sequence[Array]:
        """The gradients of a push."""
        if request.body.get("shared"):
            return self._shared()
        if not request.body.get("staged"):
            return self._numbers(request.blocks)
        if len(staged.keys() | _named(request.blocks).keys()) < len(self._shard.places):
            raise Refused(NOT_SHARED, messages.STAGED_BLOCKS_ELSEWHERE())
        return self._numbers(request.blocks, staged)

    def _numbers(
        self, blocks: Sequence[Block], staged: Mapping[tuple[int, int], Header] | None = None
    ) -> Sequence[Array]:
        """The arrays of the blocks, which with those ``staged`` must be all of the shard's, and finite."""
        wanted = [(place.tensor, place.block) for place in self._shard.places]
        came = {**(staged or {}), **_named(blocks)}
        if came.keys() != set(wanted):
            raise Refused("bad_step", messages.BLOCK_COUNT_WRONG(count=len(came), due=len(wanted)))
        if self._coming is not None and self._coming.arrived == len(wanted):
            return self._coming.gradients  # checked one by one
        for key, header in came.items():
            if header.dtype is DType.BF16:
                bf16.widen(self._halves[key], self._received[key])
        return _finite([self._received[key] for key in wanted])

    def _with_values(self, request: Message, outcome: Outcome) -> Message:
        """The reply with the parameters as blocks; with shared memory the trainer copies them itself."""
        if shared := bool(request.body.get("shared")):
            self._shared()
        with self._server.changed:
            version, standing = self._shard.version, self._shard.standing()
            if not shared:
                self._edition = self._shard.lend()
        body: dict[str, Any] = {"outcome": outcome, "values": True}
        if standing is not None:
            body["standing"] = standing.to_json()
        blocks: Sequence[Block] = self._edition.blocks if self._edition else ()
        if (
            self._edition
            and self._edition.updates
            and request.body.get("update")
            and request.head.version + 1 == version
        ):
            body["update"] = True
            blocks = self._edition.updates
        if self._ahead is not None and self._ahead.edition is self._edition:
            body["ahead"] = self._ahead.sent
            blocks = blocks[self._ahead.sent :]
        return Message(reply_head(request.head, version), body, blocks)

    def _release_reply(self) -> None:
        """Release the last reply, which is sent: its values may be overwritten."""
        if self._edition is not None:
            with self._server.changed:
                self._shard.editions.return_edition(self._edition)
            self._edition = None
        if self._ahead is not None:
            self._ahead.close()
            self._ahead = None


class _Ahead:
    """Sends one trainer the blocks of the version with its step as they are made, before the version is complete.

    Every message has the number of the draft that its block belongs to. The trainer discards the blocks of a dropped
    draft: the reply contains how many blocks of the last draft are part of it.
    """

    def __init__(
        self, server: ShardServer, coming: Coming, head: Header, update: bool, send: Callable[[Message], None]
    ) -> None:
        self._server = server
        self._coming = coming
        self._update = update
        self._head = reply_head(head)._replace(op=Op.AHEAD)
        self._send = send
        self._drafts = 0
        self.edition: Edition | None = None
        self.sent = 0

    def has_more(self) -> bool:
        draft = self._draft()
        return draft is not None and (draft.edition is not self.edition or draft.made > self.sent)

    def send(self) -> None:
        """Send the blocks made so far. Only the thread of the connection calls this."""
        with self._server.changed:
            draft = self._draft()
            if draft is None:
                return
            if draft.edition is not self.edition:
                self._change(draft.edition)
            blocks = ((self._update and draft.edition.updates) or draft.edition.blocks)[self.sent :]
        for one in blocks:
            self._send(Message(self._head._replace(version=self._drafts), {}, [one]))
            self.sent += 1

    def close(self) -> None:
        with self._server.changed:
            self._change(None)

    def _draft(self) -> Draft | None:
        return self._server.shard.draft_with(self._coming)

    def _change(self, edition: Edition | None) -> None:
        editions = self._server.shard.editions
        if self.edition is not None:
            editions.return_edition(self.edition)
        self.edition = None if edition is None else editions.borrow(edition)
        self.sent = 0
        self._drafts += 1


def _named(blocks: Sequence[Block]) -> dict[tuple[int, int], Header]:
    """The headers of blocks of parameters, by tensor and number."""
    return {
        (header.tensor, header.offset): header for header, _payload in blocks if not row_blocks.carries_rows(header)
    }


def _declaration(body: Mapping[str, Any]) -> Declaration:
    try:
        return Declaration.from_json(body)
    except (KeyError, TypeError, ValueError) as error:
        raise Refused("bad_declaration", messages.DECLARATION_UNREADABLE(error=error)) from None


def _position(body: Mapping[str, Any]) -> Position | None:
    return Position.from_json(body["at"]) if "at" in body else None


def _reply(request: Message, release: Release) -> Message:
    return Message(reply_head(request.head, release.version), {"outcome": release.outcome})


def _finite(arrays: list[Array]) -> list[Array]:
    if not all(all_finite(array) for array in arrays):
        raise Refused(Outcome.NOT_FINITE, messages.PUSH_NOT_FINITE())
    return arrays


def _log_change(index: int, before: int | None, after: int | None) -> None:
    if before == after:
        return
    if before is not None:
        log.info("trainer-%d left", index)
    if after is not None:
        log.info("trainer-%d joined", index)
