"""The network server of a shard: requests of each connection become events, releases become replies."""

from __future__ import annotations

import contextlib
import logging
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from runtime.checkpoint.data_position import Position, Progress
from runtime.contract import TRAINER, Member
from runtime.errors import Refused
from runtime.messages import training as messages
from runtime.parameters import journal_layout
from runtime.parameters.declaration import BlockPlace, Declaration
from runtime.parameters.embedding_tables import Pushed
from runtime.parameters.messages import Offer, Outcome, Standing
from runtime.protocol.connection import Block, Message
from runtime.protocol.frames import Header, Op
from runtime.protocol.proof import Refusals
from runtime.protocol.replies import reply_head
from runtime.protocol.server import Server
from runtime.protocol.shared_memory import Segment, Visit
from runtime.pserver import table_requests
from runtime.pserver.draft_sender import DraftSender
from runtime.pserver.locked_shard import LockedShard
from runtime.pserver.memory_budget import WITHOUT_LIMIT, MemoryBudget
from runtime.pserver.recovery import Recovered
from runtime.pserver.requests import REFUSALS, Release, Releases, Step, Ticket, TrainerId
from runtime.pserver.shard import Shard, places_of
from runtime.pserver.shard_reports import ShardReports
from runtime.pserver.state.eager_update import Coming
from runtime.pserver.state.published_versions import Edition
from runtime.pserver.steps.gradient_receiver import GradientReceiver

# A trainer may connect before this server has received its membership.
JOIN_SECONDS = 15.0
# The interval at which a waiting shard is ticked.
TICK_SECONDS = 3.0

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
        self._locked = LockedShard(shard)
        self.changed = self._locked.changed
        self._clock = clock
        self._reports = ShardReports(shard, clock(), on_rate, on_values, on_lost)
        self._waiting: set[Ticket] = set()  # tickets of requests without a reply
        self._released: dict[Ticket, Release] = {}
        self._seen: dict[int, int] = {}  # the index of every trainer that was ever a member, by incarnation
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
            before = self.shard.barrier.live
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

    def locked_shard(self) -> LockedShard:
        """The shard for this thread alone: ``with server.locked_shard() as shard``."""
        return self._locked

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
        self._reports.report_values()
        self._released |= {release.ticket: release for release in releases if release.ticket in self._waiting}
        self._reports.log_version(self._clock())
        self._reports.report_rate(self._clock())
        self.changed.notify_all()

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
                sizes = [(array.size, array.dtype.str) for array in self.shard.state.parameters]
                layout = journal_layout.layout(sizes, journalled)
                self._parameters = Segment.create(layout, private=True)
                marks, *arrays = self._parameters.arrays
                self.shard.move(marks, arrays[: len(sizes)], arrays[len(sizes) :])
            return self._parameters

    def _journal_fits(self) -> bool:
        declaration = self.shard.declaration
        return declaration is not None and not self.budget.refusal(
            declaration, self.shard.state.places, journalled=True
        )


class _Session:
    """The requests of one trainer's connection."""

    def __init__(self, server: ShardServer) -> None:
        self._server = server
        self._shard = server.shard
        self._receiver = GradientReceiver(server.shard.state)
        self._edition: Edition | None = None  # the edition of the last reply
        self._draft_sender: DraftSender | None = None  # sends blocks as they are made, if the trainer requests that
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
        return self._receiver.allocate(header)

    def began(self, head: Header, body: Mapping[str, Any], send: Callable[[Message], None]) -> None:
        self._release_reply()
        self._receiver.abandon()
        trainer = self._server.known(head.incarnation)
        if trainer is None or (coming := self._receiver.begin(head, body)) is None:
            return
        if head.op is Op.PUSH_PULL and body.get("ahead"):
            self._draft_sender = DraftSender(self._server.locked_shard(), coming, head, bool(body.get("update")), send)
        self._server.expect(trainer, coming)

    def arrived(self, header: Header) -> None:
        coming = self._receiver.arrived(header)
        if coming is None:
            return
        self._server.arrive(coming)
        if self._draft_sender is not None:
            self._draft_sender.send()

    def answer(self, request: Message) -> Message | None:
        answer = self._answers.get(request.head.op)
        if answer is None:
            raise Refused("unknown_op", messages.PSERVER_OPERATION_UNKNOWN(operation=request.head.op.name))
        return answer(request, self._server.trainer(request.head.incarnation))

    def closed(self) -> None:
        """Release the last reply. A waiting step stays: its trainer may repeat the request on another connection."""
        self._release_reply()
        self._receiver.abandon()

    # --- Requests ----------------------------------------------------------------------------------------------------
    def _hello(self, request: Message, trainer: TrainerId) -> Message:
        return Message(reply_head(request.head, self._shard.version), {"ready": self._shard.election.ready})

    def _declare(self, request: Message, trainer: TrainerId) -> Message:
        declaration = _declaration(request.body)
        if why := self._server.budget.refusal(declaration, self._places_of(declaration)):
            raise Refused("too_large", why)
        self._allow_drafts(declaration)
        now = self._server.now()
        release = self._server.ask(lambda ticket: self._shard.declare(ticket, trainer, declaration, now))
        return _reply(request, release)

    def _places_of(self, declaration: Declaration) -> tuple[BlockPlace, ...]:
        return places_of(declaration, self._shard.table, self._shard.server)

    def _allow_drafts(self, declaration: Declaration) -> None:
        places = self._places_of(declaration)
        fits = self._server.budget.fits_drafts(declaration, places)
        with self._server.locked_shard() as shard:
            shard.arriving.may_draft = fits
            shard.arriving.may_round = self._server.budget.fits_drafts(declaration, places, rounded=True)

    def _offer(self, request: Message, trainer: TrainerId) -> Message:
        declaration = _declaration(request.body["declaration"])
        offer, had = Offer(**request.body["offer"]), Progress.from_json(request.body["had"])
        self._allow_drafts(declaration)
        now = self._server.now()
        release = self._server.ask(lambda ticket: self._shard.declare(ticket, trainer, declaration, now, offer, had))
        return _reply(request, release)

    def _reseed(self, request: Message, trainer: TrainerId) -> Message:
        values, version = self._receiver.values(request.blocks), request.head.version
        standing = Standing.from_json(request.body["standing"])
        event = partial(self._shard.reseed, trainer=trainer, version=version, values=values, standing=standing)
        return _reply(request, self._server.ask(event))

    def _initialise(self, request: Message, trainer: TrainerId) -> Message:
        values = self._receiver.values(request.blocks)
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
        self._receiver.stage(request.blocks)

    def _push(self, request: Message, trainer: TrainerId) -> Message:
        staged = self._receiver.take_staged()
        samples = int(request.body["samples"])
        if samples < 0:
            raise Refused("bad_step", messages.STEP_SAMPLES_NEGATIVE(count=samples))
        step = Step(request.head.seq, samples, request.head.version, at=_position(request.body))
        if samples:
            gradients = self._receiver.step(request.body, request.blocks, staged)
            step = replace(step, gradients=gradients, rows=self._rows(request, trainer))
        more = (self._draft_sender.has_more, self._draft_sender.send) if self._draft_sender else ()
        release = self._server.ask(lambda ticket: self._shard.push(ticket, trainer, step), *more)
        if request.head.op is Op.PUSH:
            return _reply(request, release)
        self._wait_for_others(trainer)
        return self._with_values(request, release.outcome)

    def _pull(self, request: Message, trainer: TrainerId) -> Message:
        if not self._shard.election.ready:
            raise Refused(Outcome.NOT_READY, messages.PARAMETERS_NOT_DECLARED())
        self._wait_for_others(trainer)
        return self._with_values(request, Outcome.DONE)

    def _pull_rows(self, request: Message, trainer: TrainerId) -> Message:
        if not self._shard.election.ready:
            raise Refused(Outcome.NOT_READY, messages.PARAMETERS_NOT_DECLARED())
        self._wait_for_others(trainer)
        with self._server.locked_shard() as shard:
            blocks = table_requests.pulled(shard.state.tables, request, trainer)
            return Message(reply_head(request.head, shard.version), {"outcome": Outcome.DONE}, blocks)

    def _rows(self, request: Message, trainer: TrainerId) -> Pushed:
        """The rows of tables in a push."""
        with self._server.locked_shard() as shard:
            return table_requests.pushed(shard.state.tables, request, trainer)

    def _wait_for_others(self, trainer: TrainerId) -> None:
        """Wait until this trainer is not too far ahead; in most modes it never is."""
        with self._server.locked_shard() as shard:
            wait = not shard.may_pull(trainer)
        if wait:
            self._server.ask(lambda ticket: self._shard.pull(ticket, trainer))

    def _share(self, request: Message, trainer: TrainerId) -> Message:
        """Map the trainer's gradients, and send it the descriptor of the parameters."""
        self._receiver.use_mapped(None)
        with contextlib.suppress(OSError, KeyError, TypeError, ValueError):
            declaration = self._shard.declaration
            with contextlib.closing(Visit(str(request.body["handover"]))) as visit:
                where = {**request.body, "process": visit.process}
                arrays = Segment.open(where, declaration.layout if declaration else ()).arrays
                segment = self._server.parameters(bool(request.body.get("journal")) and self._shard.mode.in_step)
                segment.leave(visit, self._server.secret)
            self._receiver.use_mapped([place.of(arrays) for place in self._shard.state.places])
        answer = {"shared": self._receiver.is_mapped, "journal": self._shard.state.journalled}
        return Message(reply_head(request.head), answer)

    def _with_values(self, request: Message, outcome: Outcome) -> Message:
        """The reply with the parameters as blocks; with shared memory the trainer copies them itself."""
        if shared := bool(request.body.get("shared")):
            self._receiver.mapped()
        with self._server.locked_shard() as shard:
            version, standing = shard.version, shard.standing()
            if not shared:
                self._edition = shard.lend()
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
        if self._draft_sender is not None and self._draft_sender.edition is self._edition:
            body["ahead"] = self._draft_sender.sent
            blocks = blocks[self._draft_sender.sent :]
        return Message(reply_head(request.head, version), body, blocks)

    def _release_reply(self) -> None:
        """Release the last reply, which is sent: its values may be overwritten."""
        if self._edition is not None:
            with self._server.locked_shard() as shard:
                shard.state.editions.return_edition(self._edition)
            self._edition = None
        if self._draft_sender is not None:
            self._draft_sender.close()
            self._draft_sender = None


def _declaration(body: Mapping[str, Any]) -> Declaration:
    try:
        return Declaration.from_json(body)
    except (KeyError, TypeError, ValueError) as error:
        raise Refused("bad_declaration", messages.DECLARATION_UNREADABLE(error=error)) from None


def _position(body: Mapping[str, Any]) -> Position | None:
    return Position.from_json(body["at"]) if "at" in body else None


def _reply(request: Message, release: Release) -> Message:
    return Message(reply_head(request.head, release.version), {"outcome": release.outcome})


def _log_change(index: int, before: int | None, after: int | None) -> None:
    if before == after:
        return
    if before is not None:
        log.info("trainer-%d left", index)
    if after is not None:
        log.info("trainer-%d joined", index)
