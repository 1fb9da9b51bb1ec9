"""Parameters of the scaling policy. Plain values."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Rules:
    """Parameters. Times are in seconds.

    ``cool_down``: the time after which a job that grew may shrink, and one that shrank may grow. ``preempts``: whether
    jobs are stopped whole for others. The platform does not do that: there, only recalls of lent quota stop a job for
    another one.
    ``shortest_run``: the time that a job runs at least before it is stopped. ``patience``: the waiting time after which
    no later job passes a newcomer. ``head_start``: the age that each step of priority is worth. ``slack``: the fraction
    of its fair share that a job may be above or below it before others shrink. ``headroom``: the fraction of the
    largest recent growth of a service that is reserved for its next growth, for ``headroom_for`` seconds. ``depth``:
    the number of newcomers that do not fit for which capacity is searched.
    """

    cool_down: float = 30.0
    preempts: bool = False
    shortest_run: float = 60.0
    patience: float = 4 * 3600.0
    head_start: float = 3600.0
    slack: float = 0.1
    headroom: float = 0.05
    headroom_for: float = 120.0
    depth: int = 50


RULES = Rules()
