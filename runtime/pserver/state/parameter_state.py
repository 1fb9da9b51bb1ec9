"""The parameters of a shard, their optimiser state, and the update from one version to the next. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from runtime.checkpoint.data_position import Progress
from runtime.parameters import optimisers
from runtime.parameters.declaration import BlockPlace, Declaration
from runtime.parameters.embedding_tables import Tables
from runtime.parameters.kernels import fused, numpy_kernels
from runtime.parameters.kernels.gradient_mean import Means, Weights
from runtime.parameters.optimisers import Optimiser
from runtime.pserver.requests import Step
from runtime.pserver.state.copy_buffers import Copies
from runtime.pserver.state.cow_snapshot import Kept, Snapshot
from runtime.pserver.state.eager_update import Basis, Coming, Draft, State
from runtime.pserver.state.published_versions import Edition, Editions
from runtime.pserver.state.undo_journal import Journal

Array = NDArray[Any]


class ParameterState:
    """The blocks of a shard, its rows of tables and the optimiser's state, all at the same ``version``.

    Versions that were handed out never change: an update first copies what an edition with readers or the snapshot
    still refers to, and the journal has the version before until the next one is complete. The caller holds the shard's
    lock, except for ``prepare_cut``.
    """

    def __init__(self, tables: Tables) -> None:
        self.tables = tables
        self.places: tuple[BlockPlace, ...] = ()
        self.parameters: list[Array] = []
        self.optimiser = Optimiser()
        self.optimiser_state: State = []
        self.editions = Editions()
        self.journal = Journal()
        self.in_place = False  # whether readers map the parameters, so that they keep their memory
        self.snapshot: Snapshot | None = None  # the one that is being written
        self._means = Means()
        self._spare_state: State | None = None
        self._exact: list[Array] | None = None  # where updates are rounded: the parameters without rounding
        self._spare_exact: list[Array] | None = None
        self._copies = Copies(0)

    @property
    def version(self) -> int:
        """The number of updates of the parameters."""
        return self.journal.version

    @property
    def journalled(self) -> bool:
        """Whether readers have the version before until the next one is complete."""
        return bool(self.journal.blocks)

    # --- Memory ------------------------------------------------------------------------------------------------------
    def allocate(self, declaration: Declaration, places: tuple[BlockPlace, ...]) -> None:
        """Allocate the blocks at ``places`` and their optimiser state."""
        self.places = places
        sizes = [(place.stop - place.start, declaration.tensors[place.tensor].dtype) for place in places]
        self.parameters = list(numpy_kernels.adjacent(sizes))
        self.optimiser = declaration.rule
        self.optimiser_state = self.optimiser.states(self.parameters)

    def fill(self, values: Sequence[Array]) -> None:
        """Set the values of all blocks, flat and in order."""
        for parameter, value in zip(self.parameters, values, strict=True):
            parameter[:] = value

    def replace(self, version: int, values: Sequence[Array]) -> None:
        """Set the values of all blocks to those of another version; the optimiser state stays."""
        self.fill(values)
        self.journal.version, self._exact = version, None

    def restore(self, version: int, blocks: Sequence[Kept]) -> None:
        """Set values and optimiser state of every block to those of a checkpoint."""
        for parameter, state, kept in zip(self.parameters, self.optimiser_state, blocks, strict=True):
            for array, values in zip((parameter, *state), kept, strict=True):
                array[:] = values
        self.journal.version = version

    def move(self, marks: Array, parameters: Sequence[Array], journal: Sequence[Array] = ()) -> None:
        """Move the parameters and the marks to other memory, where updates are made in place from now on."""
        self.in_place, self._exact = True, None
        for target, array in zip((marks, *parameters), (self.journal.marks, *self.parameters), strict=True):
            np.copyto(target, array)
        self.journal, self.parameters = Journal(marks, journal), list(parameters)

    # --- Snapshots ---------------------------------------------------------------------------------------------------
    def cut(self, sequences: Mapping[int, int], progress: Progress, rounds: float) -> Snapshot:
        """Begin a snapshot of the present version, or return the one that is being written."""
        if self.snapshot is None:
            blocks = [(value, *state) for value, state in zip(self.parameters, self.optimiser_state, strict=True)]
            pieces = {shelf.table: list(shelf.pieces()) for shelf in self.tables}
            blocks += [piece.kept for some in pieces.values() for piece in some]
            tables = [(table, len(some)) for table, some in pieces.items()]
            copy = self._copies.copy
            self.snapshot = Snapshot(self.version, blocks, sequences, tables, progress.copy(), copy, rounds)
        return self.snapshot

    def prepare_cut(self) -> None:
        """Allocate memory for the copies of the next snapshot. From any thread: it may take a while."""
        blocks = zip(self.parameters, self.optimiser_state, strict=True)
        size = sum(array.nbytes for parameter, state in blocks for array in (parameter, *state))
        if self.snapshot is None and self._copies.size != size:
            self._copies = Copies(size)

    def forget_cut(self, snapshot: Snapshot) -> None:
        """Release a snapshot that is written or no longer needed. None of its blocks may be in use."""
        if self.snapshot is snapshot:
            self.snapshot = None
            self._copies.clear()

    # --- Drafts ------------------------------------------------------------------------------------------------------
    def begin_draft(self, members: Sequence[Coming], rounded: bool) -> Draft:
        """Begin the next version from these steps, beside the present one.

        ``rounded``: there is memory for exact values. It is used if a trainer sends bfloat16, or after an earlier
        rounding error.
        """
        edition = self.editions.draft(self.version + 1, self.parameters)
        state, self._spare_state = self._spare_state, None
        if state is None:
            state = [tuple(map(np.empty_like, arrays)) for arrays in self.optimiser_state]
        change = partial(self._change, numbers=self.optimiser.numbers(edition.version))
        basis = Basis(self.places, self.parameters, self.optimiser_state, self._exact or self.parameters)
        return Draft(members, basis, edition, state, change, self._exact_buffers(members, rounded))

    def _exact_buffers(self, members: Sequence[Coming], rounded: bool) -> list[Array] | None:
        """Memory for exact values; None without rounding."""
        if self._exact is None and not (rounded and any(member.halved for member in members)):
            return None
        buffers, self._spare_exact = self._spare_exact, None
        return buffers or [np.empty_like(parameter) for parameter in self.parameters]

    def discard(self, draft: Draft) -> None:
        """Keep the memory of an unneeded draft for the next one."""
        self.editions.drop(draft.edition)
        self._spare_state, self._spare_exact = draft.state, draft.exact

    def publish(self, draft: Draft, steps: Sequence[Step]) -> None:
        """Make a complete draft of exactly these steps the next version."""
        if self.snapshot is not None:
            self.snapshot.detach()
        version = self.version + 1
        self.editions.publish(draft.edition, self.parameters)
        self.parameters, self.optimiser_state, self._spare_state = (
            draft.edition.arrays,
            draft.state,
            self.optimiser_state,
        )
        self._exact, self._spare_exact = draft.exact, self._exact
        self._change_rows(steps, draft.weights, self.version, 1.0)
        self.journal.version = version

    # --- Updates -----------------------------------------------------------------------------------------------------
    def lend(self, copied: bool) -> Edition:
        """Lend the parameters as they are now; the caller returns them to ``editions``."""
        return self.editions.lend(self.version, self.places, self.parameters, copied)

    def update(self, steps: Sequence[Step], scale: float, rounds: float) -> None:
        """Make the next version from the mean of steps over all their samples; without steps it equals the last one.

        Steps are summed in the given order, so that the bits do not depend on the order of arrival. ``scale``
        multiplies the learning rate; ``rounds`` is the position of its schedule.
        """
        snapshot = self.snapshot
        owned = self.editions.own(self.parameters)
        if snapshot is not None and (owned is not self.parameters or self._exact is not None):
            snapshot.detach()  # the memory goes to readers, or changes now
        self.parameters = owned
        if not steps:
            self.journal.repeat()
            return
        total = sum(step.samples for step in steps)
        weights = Weights([step.samples / total for step in steps])
        version = self.version + 1
        self.journal.begin()
        self._use_exact_values()
        numbers = self.optimiser.numbers(version, scale, rounds)
        blocks = zip(self.parameters, self.optimiser_state, *(step.gradients for step in steps), strict=True)
        for number, (parameter, state, *gradients) in enumerate(blocks):
            if snapshot is not None:
                snapshot.touch(number)
            self._change(number, parameter, state, gradients, weights, numbers)
        self._change_rows(steps, weights, rounds, scale)
        self.journal.version = version

    def _use_exact_values(self) -> None:
        """Replace the rounded values by the exact ones."""
        exact, self._exact = self._exact or (), None
        for parameter, value in zip(self.parameters, exact, strict=False):
            if parameter.dtype == np.float32:
                np.copyto(parameter, value)

    def _change_rows(self, steps: Sequence[Step], weights: Weights, rounds: float, scale: float) -> None:
        rows = [(step.rows, share) for step, share in zip(steps, weights.shares, strict=True)]
        callbacks = (self.snapshot.touch_rows,) if self.snapshot is not None else ()
        self.tables.apply(rows, rounds, scale, *callbacks)

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
        rule, journal = type(self.optimiser).__name__, self.journal
        before, start = (journal.blocks[number], journal.starts[number]) if journal.blocks else (None, 0)
        if not fused.run(rule, parameter, gradients, weights, state, numbers, before, journal.marks, start):
            journal.keep(number, parameter)
            gradient = self._means.weighted(gradients, weights)
            optimisers.run(rule, (parameter, gradient, *state), numbers)
