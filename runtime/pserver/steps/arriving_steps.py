"""The steps that are being received, and the draft of the next version that is made of them. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from numpy.typing import NDArray

from runtime.pserver.contained_requests import ContainedRequests
from runtime.pserver.state.eager_update import Coming, Draft
from runtime.pserver.state.parameter_state import ParameterState

Array = NDArray[Any]


class ArrivingSteps:
    """The steps that trainers have begun to send, at most one of each trainer.

    There is at most one draft. Its members are exactly those of the last ``draft_of``; the memory of any other is back
    at ``state``. The present version does not change before ``ParameterState.publish``.
    """

    def __init__(self, state: ParameterState) -> None:
        self.may_draft = False  # whether there is memory for a version beside the present one
        self.may_round = False  # whether there is memory for exact values beside rounded ones
        self._state = state
        self._steps: dict[int, Coming] = {}  # complete ones stay until the trainer begins another
        self._draft: Draft | None = None

    @property
    def drafts(self) -> bool:
        """Whether versions can be made beside the present one: there is memory, and readers do not map it."""
        return self.may_draft and not self._state.in_place

    @property
    def drafted(self) -> int:
        """The number of blocks of the next version that are made."""
        return self._draft.made if self._draft else 0

    def begin(self, index: int, coming: Coming) -> None:
        """Trainer ``index`` has begun to send a step, which replaces its last one."""
        self._steps[index] = coming

    def forget(self, index: int) -> None:
        """Remove a lost trainer."""
        self._steps.pop(index, None)

    def based_on(self, version: int, contained: ContainedRequests) -> Mapping[int, Coming]:
        """The steps from this version that do not count yet, by trainer."""
        return {
            index: step
            for index, step in self._steps.items()
            if step.base == version and not contained.has(index, step.seq)
        }

    def draft_of(self, members: Sequence[Coming]) -> Draft | None:
        """Return the draft of exactly these steps, in this order; drop any other. None without members."""
        if self._draft is None or not self._draft.is_of([member.gradients for member in members]):
            self.drop()
            self._draft = self._state.begin_draft(members, self.may_round) if members else None
        return self._draft

    def draft_with(self, coming: Coming) -> Draft | None:
        """The draft that contains this step; None if there is none."""
        draft = self._draft
        return draft if draft is not None and any(member is coming for member in draft.members) else None

    def take(self, gradients: Sequence[Sequence[Array]]) -> Draft | None:
        """Remove the draft and return it if it is complete and made of exactly these gradients, in this order."""
        draft, self._draft = self._draft, None
        if draft is not None and draft.whole and draft.is_of(gradients):
            return draft
        if draft is not None:
            self._state.discard(draft)
        return None

    def drop(self) -> None:
        """Return the memory of the draft."""
        draft, self._draft = self._draft, None
        if draft is not None:
            self._state.discard(draft)
