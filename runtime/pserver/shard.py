"""The state machine of one parameter server: declared once, initialised once, then pushed to and pulled from.

Pure: events are method calls that carry ``now`` where time matters. They return ``Release`` values, which contain which
waiting request is answered and how.

The unit of a push is a *step*: one gradient for every block of the shard. A step is applied as a whole or not at all,
once for each (incarnation of the trainer, number), however often it is sent.

The parts of the state are ``ParameterState`` (values and updates), ``ArrivingSteps`` (steps that are being received),
``StepQueue`` (steps that wait for a version), ``ContainedRequests`` (what a version contains) and ``ValueElection``
(where values come from).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from numpy.typing import NDArray

from runtime.checkpoint.data_position import Position, Progress
from runtime.messages import paragraph
from runtime.messages import training as messages
from runtime.parameters.declaration import BlockPlace, Declaration, Mode
from runtime.parameters.embedding_tables import Full, Piece, Table, Tables
from runtime.parameters.messages import NOTHING, Offer, Outcome, Standing
from runtime.pserver.contained_requests import ContainedRequests
from runtime.pserver.requests import Release, Releases, Step, Ticket, TrainerId
from runtime.pserver.state.cow_snapshot import Kept, Snapshot
from runtime.pserver.state.eager_update import Coming
from runtime.pserver.state.parameter_state import ParameterState
from runtime.pserver.state.published_versions import Edition
from runtime.pserver.steps.arriving_steps import ArrivingSteps
from runtime.pserver.steps.barrier import Barrier
from runtime.pserver.steps.staleness import Pace
from runtime.pserver.steps.step_queue import StepQueue, Waiting
from runtime.pserver.value_election import ValueElection

Array = NDArray[Any]

# How long the first version waits for trainers of the launch that never came.
START_SECONDS = 60.0


class Shard:
    """The blocks of one server. ``trainers`` are expected at the start; ``server`` is this one's number."""

    def __init__(self, server: int, table: tuple[int, ...], trainers: int) -> None:
        self.server = server
        self.table = table
        self.barrier = Barrier(trainers)
        self.pace = Pace()
        self._pulling: dict[Ticket, int] = {}
        self._contained = ContainedRequests()
        self.mode = Mode()
        self.declaration: Declaration | None = None
        self.state = ParameterState(Tables(server, table))
        self.arriving = ArrivingSteps(self.state)
        self.queue = StepQueue(self.barrier)
        self.election = ValueElection(server, self.barrier)
        self.records = 0  # in all updates made here
        self.late = 0  # steps that were dropped because their version was made without them
        self.cut_at: int | None = None  # the version to cut at, if it is still to come

    @property
    def version(self) -> int:
        """The number of updates of the parameters."""
        return self.state.journal.version

    def move(self, marks: Array, parameters: Sequence[Array], journal: Sequence[Array] = ()) -> None:
        """Move the parameters and the marks, from which readers see whether they are complete, to other memory.

        There is a journal if there is memory for one. The parameters stay there: versions are made in place from now
        on.
        """
        self.arriving.drop()
        self.state.move(marks, parameters, journal)

    # --- Membership --------------------------------------------------------------------------------------------------
    def change_members(self, live: Mapping[int, int]) -> Releases:
        """Set the live trainers (index -> incarnation). Those that left are no longer waited for."""
        out: Releases = []
        for index in self.barrier.change_members(live):
            out += self._forget(index)
        self._contained.recognise(live)
        self.queue.admit_newcomers(self.version)
        return out + self._advance() + self._let_pull() + self.election.elect(self.version, self.mode.synchronous)

    def tick(self, now: float) -> Releases:
        """Give up on trainers of the launch that never came, and on those that offer nothing, once time is over."""
        if self.election.recovering:
            self.election.tick(now)
            return self.election.elect(self.version, self.mode.synchronous)
        if not self.barrier.start_without_absent(now):
            return []
        return self._advance() + self.election.elect(self.version, self.mode.synchronous)

    def _forget(self, index: int) -> Releases:
        self._contained.forget(index)
        self.arriving.forget(index)
        self.pace.forget(index)
        declarations = self.election.forget(index)
        entries, steps = self.queue.forget(index)
        pulls = [ticket for ticket, other in self._pulling.items() if other == index]
        for ticket in pulls:
            del self._pulling[ticket]
        return [_fenced(ticket, self.version) for ticket in (*declarations, *entries, *pulls, *steps)]

    def is_live(self, trainer: TrainerId) -> bool:
        return self.barrier.live.get(trainer.index) == trainer.incarnation

    # --- Declaration and first values --------------------------------------------------------------------------------
    def declare(
        self,
        ticket: Ticket,
        trainer: TrainerId,
        declaration: Declaration,
        now: float,
        offer: Offer = Offer(),  # noqa: B008  immutable
        had: Progress | None = None,
    ) -> Releases:
        """Agree on the parameters with a trainer that may already have values and a position: those in ``offer``.

        Answered READY if there are values, INITIALISE to the trainer that sends them, RESEED to the one whose values
        are needed, LOST if nothing can restore them.
        """
        if not self.is_live(trainer):
            return [_fenced(ticket, self.version)]
        if self.declaration is None:
            self._accept(declaration, now)
        elif self.declaration.digest != declaration.digest:
            return [Release(ticket, Outcome.CONFLICT, self.version, _difference(self.declaration, declaration))]
        self.barrier.position_reported(trainer.index)
        if offer.has_seen:
            self._contained.place(trainer.index, trainer.incarnation, offer.seq)
            self.barrier.place(trainer.index, offer.begun, offer.ended, self.version)
            if offer.begun > offer.ended:
                self.pace.enter(trainer.index)
            self._contained.progress.merge(had or Progress())
        if not self.election.recovering and not self.election.ready and offer.held > NOTHING:
            self.election.begin_recovery(NOTHING)
        self.election.declare(ticket, trainer)
        if self.election.ready and self.mode.synchronous and offer.seen > self.version:
            return self.election.lose(
                paragraph(
                    messages.PSERVER_BEHIND_TRAINER(
                        server=self.server, version=self.version, trainer=f"trainer-{trainer.index}", seen=offer.seen
                    ),
                    messages.RESUMES_FROM_COMMON_STATE(),
                ),
                self.version,
            )
        if self.election.recovering:
            self.election.take_offer(trainer.index, offer, now)
            self.barrier.start_by = now + START_SECONDS
        return self.election.elect(self.version, self.mode.synchronous) + self._advance()

    def _accept(self, declaration: Declaration, now: float) -> None:
        self.declaration = declaration
        self.mode = Mode.parse(declaration.mode)
        self.barrier.quorum = self.mode.quorum
        self.pace = Pace(self.mode.bound)
        self.barrier.start_by = now + START_SECONDS
        self.state.allocate(declaration, places_of(declaration, self.table, self.server))

    def initialise(self, ticket: Ticket, trainer: TrainerId, digest: str, values: Sequence[Array]) -> Releases:
        """Take the first values, flat and in the order of the blocks; a repetition is ALREADY, never an error."""
        if not self.is_live(trainer):
            return [_fenced(ticket, self.version)]
        if self.declaration is None or digest != self.declaration.digest:
            return [Release(ticket, Outcome.CONFLICT, self.version, messages.DECLARE_BEFORE_VALUES())]
        if self.election.ready:
            return [Release(ticket, Outcome.ALREADY, self.version)]
        self.state.fill(values)
        self.election.ready = True
        return [Release(ticket, Outcome.DONE, self.version), *self.election.elect(self.version, self.mode.synchronous)]

    # --- Lost values --------------------------------------------------------------------------------------------------
    def reseed(
        self, ticket: Ticket, trainer: TrainerId, version: int, values: Sequence[Array], standing: Standing
    ) -> Releases:
        """Take the values of a trainer, which are those of ``version`` and contain the requests in ``standing``."""
        if not self.is_live(trainer):
            return [_fenced(ticket, self.version)]
        if not self.election.recovering or self.election.giver != trainer.index:
            return [Release(ticket, Outcome.ALREADY, self.version)]
        self.state.replace(version, values)
        self._contained.merge(standing.sequences, self.barrier.live)
        self.pace.resume(standing.clocks, standing.samples, standing.rounds)
        return [Release(ticket, Outcome.DONE, version), *self.election.end_recovery(version)]

    def standing(self) -> Standing | None:
        """What is sent with values so that they can be restored; None if the version is enough."""
        if self.mode.synchronous:
            return None
        return Standing(self._contained.sequences(self.barrier.live), *self.pace.standing())

    # --- Snapshots ---------------------------------------------------------------------------------------------------
    def restore(
        self,
        declaration: Declaration,
        version: int,
        blocks: Sequence[Kept],
        sequences: Mapping[int, int],
        now: float,
        rows: Iterable[tuple[Table, Piece]] = (),
        progress: Progress | None = None,
        rounds: float | None = None,
    ) -> None:
        """Restore a checkpoint: values and state of every block, and the requests that they contain.

        ``rounds`` is the position of learning rate schedules; None: the version. Of ``rows``, those of this server are
        taken. Raises Full.
        """
        for table, piece in rows:
            self.state.tables.take(table, piece)
        self._accept(declaration, now)
        self.state.restore(version, blocks)
        self.election.ready = True
        self._contained.restore(sequences, progress or Progress())
        self.pace.resume_rounds(version if rounds is None else rounds)

    def cut(self) -> Snapshot | None:
        """Return a snapshot of the present version, or the one that is being written; None if there are no values."""
        self.cut_at = None
        if self.state.snapshot is None and self.election.ready:
            sequences, rounds = self._contained.sequences(self.barrier.live), self.pace.rounds(self.version)
            self.state.cut(sequences, self._contained.progress, rounds)
        return self.state.snapshot

    def cut_when_due(self) -> Snapshot | None:
        """Return the snapshot that is being written; cut now if this is the version to cut at."""
        if self.version == self.cut_at:
            self.cut()
        return self.state.snapshot

    # --- Passes ------------------------------------------------------------------------------------------------------
    def begin_pass(self, ticket: Ticket, trainer: TrainerId, seq: int, number: int) -> Releases:
        """A trainer begins a pass. Answered when it may pull and compute; the next version then waits for it."""
        earlier = self.queue.entry_of(trainer.index)
        if earlier is not None and self._contained.is_last(trainer.index, seq) and self.is_live(trainer):
            self.queue.repeat_entry(earlier, ticket)
            return [Release(earlier, Outcome.SUPERSEDED, self.version)]
        if (repeated := self._repeated(ticket, trainer, seq)) is not None:
            return [repeated]
        self._contained.record(trainer.index, seq)
        if not self.mode.synchronous:
            self.pace.enter(trainer.index)
            return [Release(ticket, Outcome.DONE, self.version)]
        self.queue.enter(ticket, trainer.index, number, self.version)
        return self._advance()

    def end_pass(
        self, ticket: Ticket, trainer: TrainerId, seq: int, number: int, at: Position | None = None
    ) -> Releases:
        """A trainer has no more pushes in a pass, or none for now."""
        if (repeated := self._repeated(ticket, trainer, seq)) is not None:
            return [repeated]
        self._contained.record(trainer.index, seq, at)
        self.barrier.end(trainer.index, number)
        self.pace.leave(trainer.index)
        return [Release(ticket, Outcome.DONE, self.version), *self._advance(), *self._let_pull()]

    def _repeated(self, ticket: Ticket, trainer: TrainerId, seq: int) -> Release | None:
        if not self.is_live(trainer):
            return _fenced(ticket, self.version)
        if self._contained.has(trainer.index, seq):
            return Release(ticket, Outcome.DUPLICATE, self.version)
        return None

    # --- Steps being received -----------------------------------------------------------------------------------------
    def expect(self, trainer: TrainerId, coming: Coming) -> None:
        """A trainer has begun to send a step. Nothing of it counts before ``push`` brings these same gradients."""
        if self.is_live(trainer):
            self.arriving.begin(trainer.index, coming)
            self.arrive(coming)

    def arrive(self, coming: Coming) -> bool:
        """More of a step has arrived; return whether this made another block of the next version."""
        draft = self.arriving.draft_of(self._members_to_be())
        return draft is not None and draft.advance()

    def _members_to_be(self) -> list[Coming]:
        """The steps of the next version if all that are being received are completed; empty if it is too early.

        A quorum is known at the last moment only, and steps that are applied one by one have nothing to wait for.
        """
        if not (self.arriving.drafts and self.election.ready and self.mode.synchronous) or self.mode.quorum:
            return []
        return self.queue.members(self.version, self.arriving.based_on(self.version, self._contained))

    def lend(self) -> Edition:
        """Lend the parameters as they are now; the caller returns them to ``state.editions``."""
        return self.state.lend(copied=not (self.arriving.drafts and self.mode.synchronous))

    # --- Steps -------------------------------------------------------------------------------------------------------
    def push(self, ticket: Ticket, trainer: TrainerId, step: Step) -> Releases:
        """Take a step. Answered when it is part of a version; at once if it cannot be."""
        if (repeated := self._repeated(ticket, trainer, step.seq)) is not None:
            return [repeated]
        if not self.election.ready:
            return [Release(ticket, Outcome.NOT_READY, self.version, messages.PARAMETERS_WITHOUT_VALUES())]
        try:
            self.state.tables.promise(step.rows, f"trainer-{trainer.index}")
        except Full as full:
            return [Release(ticket, Outcome.NO_MEMORY, self.version, str(full))]
        if not self.mode.synchronous:
            return [self._apply_alone(ticket, trainer, step), *self._let_pull()]
        if not self.barrier.is_active(trainer.index):
            return [Release(ticket, Outcome.OUT_OF_PLACE, self.version, messages.PUSH_OUTSIDE_PASS())]
        if step.base != self.version:
            return self._drop_late([(trainer.index, ticket, step)])
        earlier = self.queue.push(trainer.index, ticket, step)
        superseded = [] if earlier is None else [Release(earlier, Outcome.SUPERSEDED, self.version)]
        return superseded + self._advance()

    def _apply_alone(self, ticket: Ticket, trainer: TrainerId, step: Step) -> Release:
        """Apply a step at once, scaled by its trainer's pace."""
        self._contained.record(trainer.index, step.seq)
        self.pace.step(trainer.index)
        if step.samples:
            self.records += step.samples
            rounds = self.pace.rounds(self.version)
            scale = self.pace.scale(trainer.index, step.samples, self.version - step.base)
            self.cut_when_due()
            self.state.update([step], scale, rounds)
        self._contained.note(step.at)
        return Release(ticket, Outcome.DONE, self.version)

    def may_pull(self, trainer: TrainerId) -> bool:
        """Whether a pull need not wait."""
        return self.pace.may_pull(trainer.index)

    def pull(self, ticket: Ticket, trainer: TrainerId) -> Releases:
        """Answered when this trainer is not too far ahead of the others to have the newest values."""
        if not self.is_live(trainer):
            return [_fenced(ticket, self.version)]
        self._pulling[ticket] = trainer.index
        return self._let_pull()

    def _let_pull(self) -> Releases:
        due = [ticket for ticket, index in self._pulling.items() if self.pace.may_pull(index)]
        for ticket in due:
            del self._pulling[ticket]
        return _done(due, self.version)

    def _advance(self) -> Releases:
        """Make every version that can be made; admit newcomers in between."""
        out = _done(self.queue.admit(self.version), self.version)
        while waiting := self.queue.take(self.version):
            self.records += sum(step.samples for _index, _ticket, step in waiting)
            self._make_version([step for _index, _ticket, step in waiting if step.samples])
            for index, ticket, step in waiting:
                self._contained.record(index, step.seq, step.at)
                out.append(Release(ticket, Outcome.DONE, self.version))
            out += self._drop_late(self.queue.take_late(self.version))
            out += _done(self.queue.admit(self.version), self.version)
        return out

    def _drop_late(self, late: Sequence[Waiting]) -> Releases:
        """Answer steps whose version was made without them."""
        for index, _ticket, step in late:
            self._contained.record(index, step.seq, step.at)
        self.late += len(late)
        return [Release(ticket, Outcome.STALE, self.version) for _index, ticket, _step in late]

    def _make_version(self, steps: Sequence[Step]) -> None:
        """Make the next version: from the draft if it was made of exactly these steps."""
        self.cut_when_due()
        draft = self.arriving.take([step.gradients for step in steps])
        if draft is None:
            self.state.update(steps, 1.0, self.version)
        else:
            self.state.publish(draft, steps)


def places_of(declaration: Declaration, table: tuple[int, ...], server: int) -> tuple[BlockPlace, ...]:
    """Return the blocks of a declaration that a server holds; ``table`` has the server of each slot."""
    return tuple(place for place in declaration.blocks(table) if place.server == server)


def _fenced(ticket: Ticket, version: int) -> Release:
    return Release(ticket, Outcome.FENCED, version, messages.TRAINER_FENCED())


def _done(tickets: Iterable[Ticket], version: int) -> Releases:
    return [Release(ticket, Outcome.DONE, version) for ticket in tickets]


def _difference(ours: Declaration, theirs: Declaration) -> str:
    """A message with the difference of two declarations."""
    if ours.mode != theirs.mode:
        return messages.MODES_DIFFER(theirs=f"{ours.mode!r}", ours=f"{theirs.mode!r}")
    if ours.optimiser != theirs.optimiser:
        return messages.OPTIMISERS_DIFFER(theirs=ours.optimiser, ours=theirs.optimiser)
    mine, other = set(ours.tensors), set(theirs.tensors)
    names = ", ".join(sorted({tensor.name for tensor in mine ^ other})) or "their order"
    return messages.PARAMETERS_DIFFER(names=names)
