"""The state machine of one parameter server: declared once, initialised once, then pushed to and pulled from.

Pure: events are method calls that carry ``now`` where time matters. They return ``Release`` values, which contain which
waiting request is answered and how. A ticket is any value by which the caller finds the request again.

The unit of a push is a *step*: one gradient for every block of the shard. A step is applied as a whole or not at all,
once for each (incarnation of the trainer, number), however often it is sent.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from runtime.checkpoint.data_position import Position, Progress
from runtime.messages import paragraph
from runtime.messages import training as messages
from runtime.parameters import optimisers
from runtime.parameters.declaration import BlockPlace, Declaration, Mode
from runtime.parameters.embedding_tables import Full, Piece, Pushed, Table, Tables
from runtime.parameters.kernels import fused, numpy_kernels
from runtime.parameters.kernels.gradient_mean import Means, Weights
from runtime.parameters.messages import NOTHING, Offer, Outcome, Standing
from runtime.parameters.optimisers import Optimiser
from runtime.pserver.barrier import Barrier
from runtime.pserver.copy_buffers import Copies
from runtime.pserver.cow_snapshot import Kept, Snapshot
from runtime.pserver.eager_update import Basis, Coming, Draft, State
from runtime.pserver.published_versions import Edition, Editions
from runtime.pserver.recovery import Choice, Comeback, Recovered
from runtime.pserver.staleness import Pace
from runtime.pserver.undo_journal import Journal

Array = NDArray[Any]
Ticket = Hashable

# How long the first version waits for trainers of the launch that never came.
START_SECONDS = 60.0


REFUSALS = frozenset(
    {
        Outcome.SUPERSEDED,
        Outcome.CONFLICT,
        Outcome.FENCED,
        Outcome.NOT_READY,
        Outcome.OUT_OF_PLACE,
        Outcome.NOT_FINITE,
        Outcome.LOST,
        Outcome.NO_MEMORY,
    }
)


@dataclass(frozen=True)
class Release:
    """The answer to a request: its ticket, the outcome, the shard's version, and the reason of a refusal."""

    ticket: Ticket
    outcome: Outcome
    version: int = 0
    why: str = ""


@dataclass(frozen=True)
class TrainerId:
    """A trainer's process."""

    index: int
    incarnation: int


@dataclass(frozen=True)
class Step:
    """A push: ``gradients`` are flat, in the order of the shard's blocks, means over ``samples`` records.

    ``base`` is the version at which they were computed, ``seq`` the number of the request. A step without samples has
    no gradients: its trainer takes part, and changes nothing. ``rows`` are the gradients for the tables that it uses.
    ``at`` is its position in the data.
    """

    seq: int
    samples: int
    base: int
    gradients: Sequence[Array] = ()
    rows: Pushed = field(default_factory=dict)
    at: Position | None = None


Releases = list[Release]


class Shard:
    """The blocks of one server. ``trainers`` are expected at the start; ``server`` is this one's number."""

    def __init__(self, server: int, table: tuple[int, ...], trainers: int) -> None:
        self._server = server
        self._table = table
        self._barrier = Barrier(trainers)
        self._mode = Mode()
        self._pace = Pace()
        self._start_by: float | None = None
        self.declaration: Declaration | None = None
        self.places: tuple[BlockPlace, ...] = ()
        self.parameters: list[Array] = []
        self.tables = Tables(server, table)
        self._optimiser = Optimiser()
        self._means = Means()
        self._state: State = []
        self.editions = Editions()
        self.may_draft = False  # whether there is memory for a version beside the present one
        self._moved = False
        self._coming: dict[int, Coming] = {}  # steps that are being received, or have arrived completely
        self._draft: Draft | None = None
        self._spare_state: State | None = None
        self.may_round = False  # whether there is memory for exact values beside rounded ones
        self._exact: list[Array] | None = None  # where updates are rounded: the parameters without rounding
        self._spare_exact: list[Array] | None = None
        self.ready = False
        self._journal = Journal()
        self._declaring: dict[Ticket, TrainerId] = {}
        self._entering: dict[Ticket, int] = {}
        self._pulling: dict[Ticket, int] = {}
        self.records = 0  # in all updates made here
        self.late = 0  # steps that were dropped because their version was made without them
        self._pushed: dict[int, tuple[Ticket, Step]] = {}
        self._applied: dict[int, int] = {}  # the last request number of each live trainer
        self._restored: Mapping[int, int] = {}  # the same from the checkpoint, by incarnation
        self.cut_at: int | None = None  # the version to cut at, if it is still to come
        self._snapshot: Snapshot | None = None
        self._copies = Copies(0)
        self._comeback: Comeback | None = None  # set while the values are lost
        self.recovered: Recovered | None = None  # how the values were restored
        self.lost = ""  # why they cannot be restored
        self.progress = Progress()  # the position in the data that the version contains

    @property
    def version(self) -> int:
        """The number of updates of the parameters."""
        return self._journal.version

    @version.setter
    def version(self, version: int) -> None:
        self._journal.version = version

    @property
    def in_step(self) -> bool:
        """Whether every version waits for all trainers that use the one before."""
        return self._mode.in_step

    @property
    def journalled(self) -> bool:
        """Whether readers have the version before until the next one is complete."""
        return bool(self._journal.blocks)

    def move(self, marks: Array, parameters: Sequence[Array], journal: Sequence[Array] = ()) -> None:
        """Move the parameters and the marks, from which readers see whether they are complete, to other memory.

        There is a journal if there is memory for one. The parameters stay there: versions are made in place from now
        on.
        """
        self._drop_draft()
        self._moved, self._exact = True, None
        for target, array in zip((marks, *parameters), (self._journal.marks, *self.parameters), strict=True):
            np.copyto(target, array)
        self._journal, self.parameters = Journal(marks, journal), list(parameters)

    # --- Membership --------------------------------------------------------------------------------------------------
    def change_members(self, live: Mapping[int, int]) -> Releases:
        """Set the live trainers (index -> incarnation). Those that left are no longer waited for."""
        out: Releases = []
        for index in self._barrier.change_members(live):
            out += self._forget(index)
        for index, incarnation in live.items():
            if incarnation in self._restored:
                self._applied.setdefault(index, self._restored[incarnation])
        if not self._pushed:
            self._barrier.admit_all(self.version)
        return out + self._advance() + self._let_pull() + self._elect()

    def tick(self, now: float) -> Releases:
        """Give up on trainers of the launch that never came, and on those that offer nothing, once time is over."""
        if self._comeback is not None:
            self._comeback.tick(now)
            return self._elect()
        if self._start_by is None or now < self._start_by:
            return []
        self._start_by = None
        self._barrier.start_without_absent()
        return self._advance() + self._elect()

    def _forget(self, index: int) -> Releases:
        self._applied.pop(index, None)
        self._coming.pop(index, None)
        self._pace.forget(index)
        if self._comeback is not None:
            self._comeback.forget(index)
        tickets = [ticket for ticket, trainer in self._declaring.items() if trainer.index == index]
        for waiting in (self._entering, self._pulling):
            tickets += [ticket for ticket, other in waiting.items() if other == index]
        for ticket in tickets:
            self._declaring.pop(ticket, None)
            self._entering.pop(ticket, None)
            self._pulling.pop(ticket, None)
        if index in self._pushed:
            tickets.append(self._pushed.pop(index)[0])
        return [self._fenced(ticket) for ticket in tickets]

    @property
    def live(self) -> Mapping[int, int]:
        """Incarnation of each live trainer by its index."""
        return self._barrier.live

    def is_live(self, trainer: TrainerId) -> bool:
        return self._barrier.live.get(trainer.index) == trainer.incarnation

    def _fenced(self, ticket: Ticket) -> Release:
        return Release(ticket, Outcome.FENCED, self.version, messages.TRAINER_FENCED())

    # --- Declaration and first values --------------------------------------------------------------------------------
    def declare(self, ticket: Ticket, trainer: TrainerId, declaration: Declaration, now: float) -> Releases:
        """Agree on the parameters. Answered READY if there are values, INITIALISE to the trainer that sends them."""
        return self.offer(ticket, trainer, declaration, Offer(), now)

    def offer(
        self,
        ticket: Ticket,
        trainer: TrainerId,
        declaration: Declaration,
        offer: Offer,
        now: float,
        had: Progress | None = None,
    ) -> Releases:
        """Take the declaration of a trainer that may already have values and a position.

        Answered RESEED to the trainer whose values are needed, LOST if nothing can restore them.
        """
        if not self.is_live(trainer):
            return [self._fenced(ticket)]
        if self.declaration is None:
            self._accept(declaration, now)
        elif self.declaration.digest != declaration.digest:
            return [Release(ticket, Outcome.CONFLICT, self.version, _difference(self.declaration, declaration))]
        self._barrier.position_reported(trainer.index)
        if offer.has_seen:
            self._place(trainer, offer)
            self.progress.merge(had or Progress())
        if self._comeback is None and not self.ready and offer.held > NOTHING:
            self.come_back()
        if self.ready and self._mode.synchronous and offer.seen > self.version:
            self._declaring[ticket] = trainer
            return self._lose(
                paragraph(
                    messages.PSERVER_BEHIND_TRAINER(
                        server=self._server, version=self.version, trainer=f"trainer-{trainer.index}", seen=offer.seen
                    ),
                    messages.RESUMES_FROM_COMMON_STATE(),
                )
            )
        if self._comeback is not None:
            self._comeback.take(trainer.index, offer, now)
            self._start_by = now + START_SECONDS
        self._declaring[ticket] = trainer
        return self._elect() + self._advance()

    def _place(self, trainer: TrainerId, offer: Offer) -> None:
        """Take a trainer's position from its offer."""
        contained = self._restored.get(trainer.incarnation, 0)
        self._applied[trainer.index] = max(self._applied.get(trainer.index, 0), contained, offer.seq)
        self._barrier.place(trainer.index, offer.begun, offer.ended, self.version)
        if offer.begun > offer.ended:
            self._pace.enter(trainer.index)

    def places_of(self, declaration: Declaration) -> tuple[BlockPlace, ...]:
        """The blocks of a declaration that this server holds."""
        return tuple(place for place in declaration.blocks(self._table) if place.server == self._server)

    def _accept(self, declaration: Declaration, now: float) -> None:
        self.declaration = declaration
        self._mode = Mode.parse(declaration.mode)
        self._barrier.quorum = self._mode.quorum
        self._pace = Pace(self._mode.bound)
        self._start_by = now + START_SECONDS
        self.places = self.places_of(declaration)
        sizes = [(place.stop - place.start, declaration.tensors[place.tensor].dtype) for place in self.places]
        self.parameters = list(numpy_kernels.adjacent(sizes))
        self._optimiser = declaration.rule
        self._state = self._optimiser.states(self.parameters)

    def _elect(self) -> Releases:
        """Answer the declarations that can be answered. The lowest trainer that is due or declares sends the values."""
        if self._comeback is not None:
            return self._choose(self._comeback)
        if self.ready:
            return self._answer_declarations(Outcome.READY)
        first = min({trainer.index for trainer in self._declaring.values()} | set(self._barrier.due), default=None)
        return self._answer_declarations(Outcome.INITIALISE, first)

    def _answer_declarations(self, outcome: Outcome, index: int | None = None, why: str = "") -> Releases:
        """Answer the declarations of one trainer, or of all."""
        chosen = [ticket for ticket, trainer in self._declaring.items() if index in (None, trainer.index)]
        for ticket in chosen:
            del self._declaring[ticket]
        return [Release(ticket, outcome, self.version, why) for ticket in chosen]

    def initialise(self, ticket: Ticket, trainer: TrainerId, digest: str, values: Sequence[Array]) -> Releases:
        """Take the first values, flat and in the order of the blocks; a repetition is ALREADY, never an error."""
        if not self.is_live(trainer):
            return [self._fenced(ticket)]
        if self.declaration is None or digest != self.declaration.digest:
            return [Release(ticket, Outcome.CONFLICT, self.version, messages.DECLARE_BEFORE_VALUES())]
        if self.ready:
            return [Release(ticket, Outcome.ALREADY, self.version)]
        for parameter, value in zip(self.parameters, values, strict=True):
            parameter[:] = value
        self.ready = True
        return [Release(ticket, Outcome.DONE, self.version), *self._elect()]

    @property
    def optimiser(self) -> Optimiser:
        """The rule by which it updates."""
        return self._optimiser

    # --- Lost values --------------------------------------------------------------------------------------------------
    def come_back(self, stored: int = NOTHING) -> None:
        """Wait for values from trainers, or else use those of the checkpoint that was restored before."""
        self.ready = False
        self._comeback = Comeback(stored)
        self._barrier.forget_launch()

    def _choose(self, comeback: Comeback) -> Releases:
        choice = comeback.choose(self._barrier.live, self._mode.synchronous)
        if choice is Choice.TRAINER:
            return self._answer_declarations(Outcome.RESEED, comeback.giver)
        if choice is Choice.CHECKPOINT:
            return self._back(comeback)
        if choice is Choice.LOST:
            kept = (
                messages.ONLY_VALUES_OF_VERSION(version=comeback.stored)
                if comeback.stored > NOTHING
                else messages.NO_VALUES()
            )
            return self._lose(
                paragraph(
                    messages.PSERVER_VALUES_LOST(server=self._server, kept=kept), messages.RESUMES_FROM_COMMON_STATE()
                )
            )
        return []

    def _lose(self, why: str) -> Releases:
        """Record that the values cannot be restored in this attempt."""
        self.lost = why
        return self._answer_declarations(Outcome.LOST, why=self.lost)

    def reseed(
        self, ticket: Ticket, trainer: TrainerId, version: int, values: Sequence[Array], standing: Standing
    ) -> Releases:
        """Take the values of a trainer, which are those of ``version`` and contain the requests in ``standing``."""
        if not self.is_live(trainer):
            return [self._fenced(ticket)]
        if self._comeback is None or self._comeback.giver != trainer.index:
            return [Release(ticket, Outcome.ALREADY, self.version)]
        for parameter, value in zip(self.parameters, values, strict=True):
            parameter[:] = value
        self.version, self._exact = version, None
        self._restored = {**self._restored, **standing.sequences}
        for index, incarnation in self._barrier.live.items():
            self._applied[index] = max(self._applied.get(index, 0), self._restored.get(incarnation, 0))
        self._pace.resume(standing.clocks, standing.samples, standing.rounds)
        return [Release(ticket, Outcome.DONE, version), *self._back(self._comeback)]

    def _back(self, comeback: Comeback) -> Releases:
        """Continue with restored values."""
        self.recovered = Recovered(self.version, comeback.giver, comeback.stored)
        self._comeback, self.ready = None, True
        self._barrier.await_all_but(comeback.reported)
        return self._elect()

    def standing(self) -> Standing | None:
        """What is sent with values so that they can be restored; None if the version is enough."""
        if self._mode.synchronous:
            return None
        return Standing(self._sequences(), *self._pace.standing())

    def _sequences(self) -> dict[int, int]:
        """The last request of each live trainer, by incarnation."""
        live = self._barrier.live
        return {live[index]: seq for index, seq in self._applied.items() if index in live}

    # --- Snapshots ---------------------------------------------------------------------------------------------------
    @property
    def synchronous(self) -> bool:
        """Whether a version is the same step of training on all servers."""
        return self._mode.synchronous

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
            self.tables.take(table, piece)
        self._accept(declaration, now)
        for parameter, state, kept in zip(self.parameters, self._state, blocks, strict=True):
            for array, values in zip((parameter, *state), kept, strict=True):
                array[:] = values
        self.version, self.ready, self._restored = version, True, sequences
        self.progress = progress or Progress()
        self._pace.resume_rounds(version if rounds is None else rounds)

    def cut(self) -> Snapshot | None:
        """Return a snapshot of the present version, or the one that is being written; None if there are no values."""
        self.cut_at = None
        if self._snapshot is None and self.ready:
            blocks = [(parameter, *state) for parameter, state in zip(self.parameters, self._state, strict=True)]
            pieces = {shelf.table: list(shelf.pieces()) for shelf in self.tables}
            blocks += [piece.kept for some in pieces.values() for piece in some]
            tables = [(table, len(some)) for table, some in pieces.items()]
            progress = self.progress.copy()
            copy, rounds = self._copies.copy, self._pace.rounds(self.version)
            self._snapshot = Snapshot(self.version, blocks, self._sequences(), tables, progress, copy, rounds)
        return self._snapshot

    def prepare_cut(self) -> None:
        """Allocate memory for the copies of the next snapshot. From any thread: it may take a while."""
        blocks = zip(self.parameters, self._state, strict=True)
        size = sum(array.nbytes for parameter, state in blocks for array in (parameter, *state))
        if self._snapshot is None and self._copies.size != size:
            self._copies = Copies(size)

    def cut_when_due(self) -> Snapshot | None:
        """Return the snapshot that is being written; cut now if this is the version to cut at."""
        if self.version == self.cut_at:
            self.cut()
        return self._snapshot

    def forget_cut(self, snapshot: Snapshot) -> None:
        """Release a snapshot that is written or no longer needed. None of its blocks may be in use."""
        if self._snapshot is snapshot:
            self._snapshot = None
            self._copies.clear()

    # --- Passes ------------------------------------------------------------------------------------------------------
    def begin_pass(self, ticket: Ticket, trainer: TrainerId, seq: int, number: int) -> Releases:
        """A trainer begins a pass. Answered when it may pull and compute; the next version then waits for it."""
        held = [entering for entering, index in self._entering.items() if index == trainer.index]
        if held and seq == self._applied.get(trainer.index) and self.is_live(trainer):
            self._entering[ticket] = self._entering.pop(held[0])
            return [Release(held[0], Outcome.SUPERSEDED, self.version)]
        if (repeated := self._repeated(ticket, trainer, seq)) is not None:
            return [repeated]
        self._applied[trainer.index] = seq
        if not self._mode.synchronous:
            self._pace.enter(trainer.index)
            return [Release(ticket, Outcome.DONE, self.version)]
        self._barrier.begin(trainer.index, number, self.version, forming=bool(self._pushed))
        self._entering[ticket] = trainer.index
        return self._advance()

    def end_pass(
        self, ticket: Ticket, trainer: TrainerId, seq: int, number: int, at: Position | None = None
    ) -> Releases:
        """A trainer has no more pushes in a pass, or none for now."""
        if (repeated := self._repeated(ticket, trainer, seq)) is not None:
            return [repeated]
        self._note(at)
        self._applied[trainer.index] = seq
        self._barrier.end(trainer.index, number)
        self._pace.leave(trainer.index)
        return [Release(ticket, Outcome.DONE, self.version), *self._advance(), *self._let_pull()]

    def _repeated(self, ticket: Ticket, trainer: TrainerId, seq: int) -> Release | None:
        if not self.is_live(trainer):
            return self._fenced(ticket)
        if seq <= self._applied.get(trainer.index, 0):
            return Release(ticket, Outcome.DUPLICATE, self.version)
        return None

    def _admit(self) -> Releases:
        due = [ticket for ticket, index in self._entering.items() if self._barrier.may_enter(index, self.version)]
        for ticket in due:
            del self._entering[ticket]
        return [Release(ticket, Outcome.DONE, self.version) for ticket in due]

    # --- Steps being received -----------------------------------------------------------------------------------------
    def expect(self, trainer: TrainerId, coming: Coming) -> None:
        """A trainer has begun to send a step. Nothing of it counts before ``push`` brings these same gradients."""
        if self.is_live(trainer):
            self._coming[trainer.index] = coming
            self.arrive(coming)

    def arrive(self, coming: Coming) -> bool:
        """More of a step has arrived; return whether this made another block of the next version."""
        draft = self._drafted()
        return draft is not None and draft.advance()

    @property
    def drafted(self) -> int:
        """The number of blocks of the next version that are made."""
        return self._draft.made if self._draft else 0

    def draft_with(self, coming: Coming) -> Draft | None:
        """The draft that contains this step; None if there is none."""
        draft = self._draft
        return draft if draft is not None and any(member is coming for member in draft.members) else None

    def _drafted(self) -> Draft | None:
        """The draft of the next version, as far as its steps are known now."""
        members = self._members_to_be()
        if self._draft is None or not self._draft.is_of([member.gradients for member in members]):
            self._drop_draft()
            self._draft = self._begin_draft(members) if members else None
        return self._draft

    def _members_to_be(self) -> list[Coming]:
        """The steps of the next version if all that are being received are completed; empty if it is too early.

        A quorum is known at the last moment only, and steps that are applied one by one have nothing to wait for.
        """
        if not (self.may_draft and self.ready and self._mode.synchronous) or self._mode.quorum or self._moved:
            return []
        coming = {index: step for index, step in self._coming.items() if self._may_count(index, step)}
        contributors = self._barrier.contributors(self.version, coming.keys() | self._pushed.keys())
        empty = {index for index, (_ticket, step) in self._pushed.items() if not step.samples}
        members = [index for index in contributors if index not in empty]
        return [coming[index] for index in members] if all(index in coming for index in members) else []

    def _may_count(self, index: int, step: Coming) -> bool:
        return step.base == self.version and step.seq > self._applied.get(index, 0)

    def _begin_draft(self, members: Sequence[Coming]) -> Draft:
        edition = self.editions.draft(self.version + 1, self.parameters)
        state, self._spare_state = self._spare_state, None
        if state is None:
            state = [tuple(map(np.empty_like, arrays)) for arrays in self._state]
        change = partial(self._change, numbers=self._optimiser.numbers(edition.version))
        basis = Basis(self.places, self.parameters, self._state, self._exact or self.parameters)
        return Draft(members, basis, edition, state, change, self._exact_buffers(members))

    def _exact_buffers(self, members: Sequence[Coming]) -> list[Array] | None:
        """Memory for exact values; None without rounding.

        That is so if no trainer sends bfloat16, and there is no earlier rounding error.
        """
        if self._exact is None and not (self.may_round and any(member.halved for member in members)):
            return None
        buffers, self._spare_exact = self._spare_exact, None
        return buffers or [np.empty_like(parameter) for parameter in self.parameters]

    def _pay(self) -> None:
        """Replace the rounded values by the exact ones."""
        exact, self._exact = self._exact or (), None
        for parameter, value in zip(self.parameters, exact, strict=False):
            if parameter.dtype == np.float32:
                np.copyto(parameter, value)

    def _drop_draft(self) -> None:
        draft, self._draft = self._draft, None
        self._set_aside(draft)

    def _set_aside(self, draft: Draft | None) -> None:
        """Keep the memory of an unneeded draft for the next one."""
        if draft is not None:
            self.editions.drop(draft.edition)
            self._spare_state, self._spare_exact = draft.state, draft.exact

    def lend(self) -> Edition:
        """Lend the parameters as they are now; the caller returns them to ``editions``."""
        copied = self._moved or not self.may_draft or not self._mode.synchronous
        return self.editions.lend(self.version, self.places, self.parameters, copied)

    # --- Steps -------------------------------------------------------------------------------------------------------
    def push(self, ticket: Ticket, trainer: TrainerId, step: Step) -> Releases:
        """Take a step. Answered when it is part of a version; at once if it cannot be."""
        if (repeated := self._repeated(ticket, trainer, step.seq)) is not None:
            return [repeated]
        if not self.ready:
            return [Release(ticket, Outcome.NOT_READY, self.version, messages.PARAMETERS_WITHOUT_VALUES())]
        try:
            self.tables.promise(step.rows, f"trainer-{trainer.index}")
        except Full as full:
            return [Release(ticket, Outcome.NO_MEMORY, self.version, str(full))]
        if not self._mode.synchronous:
            return [self._apply_alone(ticket, trainer, step), *self._let_pull()]
        if not self._barrier.is_active(trainer.index):
            return [Release(ticket, Outcome.OUT_OF_PLACE, self.version, messages.PUSH_OUTSIDE_PASS())]
        if step.base != self.version:
            self._applied[trainer.index] = step.seq
            self._note(step.at)
            self.late += 1
            return [Release(ticket, Outcome.STALE, self.version)]
        earlier = self._pushed.get(trainer.index)
        self._pushed[trainer.index] = (ticket, step)
        superseded = [Release(earlier[0], Outcome.SUPERSEDED, self.version)] if earlier else []
        return superseded + self._advance()

    def _apply_alone(self, ticket: Ticket, trainer: TrainerId, step: Step) -> Release:
        """Apply a step at once, scaled by its trainer's pace."""
        self._applied[trainer.index] = step.seq
        self._pace.step(trainer.index)
        if step.samples:
            self.records += step.samples
            rounds = self._pace.rounds(self.version)
            scale = self._pace.scale(trainer.index, step.samples, self.version - step.base)
            self._update([step], scale, rounds)
        self._note(step.at)
        return Release(ticket, Outcome.DONE, self.version)

    def may_pull(self, trainer: TrainerId) -> bool:
        """Whether a pull need not wait."""
        return self._pace.may_pull(trainer.index)

    def pull(self, ticket: Ticket, trainer: TrainerId) -> Releases:
        """Answered when this trainer is not too far ahead of the others to have the newest values."""
        if not self.is_live(trainer):
            return [self._fenced(ticket)]
        self._pulling[ticket] = trainer.index
        return self._let_pull()

    def _let_pull(self) -> Releases:
        due = [ticket for ticket, index in self._pulling.items() if self._pace.may_pull(index)]
        for ticket in due:
            del self._pulling[ticket]
        return [Release(ticket, Outcome.DONE, self.version) for ticket in due]

    def _advance(self) -> Releases:
        """Make every version that can be made; admit newcomers in between."""
        out = self._admit()
        while contributors := self._barrier.contributors(self.version, self._pushed):
            steps = [self._pushed.pop(index) for index in contributors]
            self.records += sum(step.samples for _ticket, step in steps)
            self._make_version([step for _ticket, step in steps if step.samples])
            for index, (ticket, step) in zip(contributors, steps, strict=True):
                self._applied[index] = step.seq
                self._note(step.at)
                out.append(Release(ticket, Outcome.DONE, self.version))
            out += self._drop_late()
            out += self._admit()
        return out

    def _drop_late(self) -> Releases:
        """Answer steps that wait for a version that was made without them."""
        late = {i: held for i, held in self._pushed.items() if held[1].base != self.version}
        for index, (_ticket, step) in late.items():
            del self._pushed[index]
            self._applied[index] = step.seq
            self._note(step.at)
        self.late += len(late)
        return [Release(ticket, Outcome.STALE, self.version) for ticket, _step in late.values()]

    def _note(self, at: Position | None) -> None:
        """Record that the version contains the data up to this position."""
        if at is not None:
            self.progress.note(at)

    def _make_version(self, steps: Sequence[Step]) -> None:
        """Make the next version: from the draft if it was made of exactly these steps."""
        draft, self._draft = self._draft, None
        if draft is None or not draft.whole or not draft.is_of([step.gradients for step in steps]):
            self._set_aside(draft)
            self._update(steps, 1.0, self.version)
            return
        if (snapshot := self.cut_when_due()) is not None:
            snapshot.detach()
        version = self.version + 1
        self.editions.publish(draft.edition, self.parameters)
        self.parameters, self._state, self._spare_state = draft.edition.arrays, draft.state, self._state
        self._exact, self._spare_exact = draft.exact, self._exact
        self._change_rows(steps, draft.weights, self.version, 1.0)
        self.version = version

    def _change_rows(self, steps: Sequence[Step], weights: Weights, rounds: float, scale: float) -> None:
        rows = [(step.rows, share) for step, share in zip(steps, weights.shares, strict=True)]
        callbacks = (self._snapshot.touch_rows,) if self._snapshot is not None else ()
        self.tables.apply(rows, rounds, scale, *callbacks)

    def _update(self, steps: Sequence[Step], scale: float, rounds: float) -> None:
        """Make the next version from the mean of steps over all their samples; without steps it equals the last one.

        Steps are summed in the given order, so that the bits do not depend on the order of arrival. ``scale``
        multiplies the learning rate; ``rounds`` is the position of its schedule.
        """
        snapshot = self.cut_when_due()
        owned = self.editions.own(self.parameters)
        if snapshot is not None and (owned is not self.parameters or self._exact is not None):
            snapshot.detach()  # the memory goes to readers, or changes now
        self.parameters = owned
        if not steps:
            self._journal.repeat()
            return
        total = sum(step.samples for step in steps)
        weights = Weights([step.samples / total for step in steps])
        version = self.version + 1
        self._journal.begin()
        self._pay()
        numbers = self._optimiser.numbers(version, scale, rounds)
        blocks = zip(self.parameters, self._state, *(step.gradients for step in steps), strict=True)
        for number, (parameter, state, *gradients) in enumerate(blocks):
            if snapshot is not None:
                snapshot.touch(number)
            self._change(number, parameter, state, gradients, weights, numbers)
        self._change_rows(steps, weights, rounds, scale)
        self.version = version

    def _change(
        self,
        number: int,
        parameter: Array,
        state: tuple[Array, ...],
        gradients: Sequence[Array],
        weights: Weights,
        numbers: Sequence[float],
    ) -> None:
        """Update block ``number`` by the mean of ``gradients``; with the compiled kernel if it is available."""
        rule, journal = type(self._optimiser).__name__, self._journal
        before, start = (journal.blocks[number], journal.starts[number]) if journal.blocks else (None, 0)
        if not fused.run(rule, parameter, gradients, weights, state, numbers, before, journal.marks, start):
            journal.keep(number, parameter)
            gradient = self._means.weighted(gradients, weights)
            optimisers.run(rule, (parameter, gradient, *state), numbers)


def _difference(ours: Declaration, theirs: Declaration) -> str:
    """A message with the difference of two declarations."""
    if ours.mode != theirs.mode:
        return messages.MODES_DIFFER(theirs=f"{ours.mode!r}", ours=f"{theirs.mode!r}")
    if ours.optimiser != theirs.optimiser:
        return messages.OPTIMISERS_DIFFER(theirs=ours.optimiser, ours=theirs.optimiser)
    mine, other = set(ours.tensors), set(theirs.tensors)
    names = ", ".join(sorted({tensor.name for tensor in mine ^ other})) or "their order"
    return messages.PARAMETERS_DIFFER(names=names)
