"""Failure policy: the reaction to a failed pod of a job. Pure.

The first matching rule of the job decides, then the rules of all jobs (``DEFAULTS``), then the job's back-off limit.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

from jobs.operator.model.names import Object


class Verdict(StrEnum):
    """FAIL ends the job. RESTART counts against the back-off limit, RESTART_FREE does not."""

    FAIL = "Fail"
    RESTART = "Restart"
    RESTART_FREE = "RestartIgnoreLimit"


@dataclass(frozen=True)
class Failure:
    """Failure of a pod.

    ``exit_code``: of the first container that failed; None: no container ended with a code. ``reason`` and ``message``:
    those of Kubernetes.
    """

    pod: str
    role: str
    exit_code: int | None = None
    reason: str = ""
    message: str = ""

    def description(self) -> str:
        what = f" with code {self.exit_code}" if self.exit_code is not None else ""
        why = f" ({self.reason})" if self.reason and self.reason != "Error" else ""
        details = f": {self.message.strip()}" if self.message.strip() else ""
        return f"{self.pod} failed{what}{why}{details}"[:1000]


@dataclass(frozen=True)
class Rule:
    """Rule that matches a failure by role, exit code and reason; an empty set matches all."""

    verdict: Verdict
    roles: frozenset[str] = frozenset()
    exit_codes: tuple[range, ...] = ()
    reasons: frozenset[str] = frozenset()

    def fits(self, failure: Failure) -> bool:
        return (
            (not self.roles or failure.role in self.roles)
            and (not self.reasons or failure.reason in self.reasons)
            and (not self.exit_codes or any(failure.exit_code in codes for codes in self.exit_codes))
        )


# Reasons of failures that the node caused, not the job.
NODE_REASONS = frozenset(
    {"Evicted", "NodeLost", "NodeShutdown", "Shutdown", "Terminated", "Preempting", "UnexpectedAdmissionError"}
    | {"OutOfcpu", "OutOfmemory", "OutOfpods", "OutOfephemeral-storage", "NodeAffinity"}
)
DEFAULTS: Sequence[Rule] = (Rule(Verdict.RESTART_FREE, reasons=NODE_REASONS),)

_FIRST_PAUSE, _LONGEST_PAUSE = 1.0, 300.0
_CODES = re.compile(r"([0-9]{1,3})(?:-([0-9]{1,3}))?", re.ASCII)


def judge(failure: Failure, rules: Sequence[Rule], restarts: int, limit: int | None) -> Verdict:
    """Return the reaction to a failure, given the ``restarts`` counted so far.

    Without a limit a failed pod ends the job, as in paddle-operator.
    """
    verdict = next((rule.verdict for rule in (*rules, *DEFAULTS) if rule.fits(failure)), Verdict.RESTART)
    if verdict is Verdict.RESTART and restarts >= (limit or 0):
        return Verdict.FAIL
    return verdict


def pause(starts: int) -> float:
    """Return the seconds to wait before the restart number ``starts``."""
    return min(_LONGEST_PAUSE, _FIRST_PAUSE * 2.0 ** min(starts - 1, 16)) if starts > 0 else 0.0


def failure_of(pod: Object, role: str) -> Failure:
    """Return the failure of a pod in phase Failed."""
    status = pod.get("status") or {}
    statuses = [*(status.get("initContainerStatuses") or ()), *(status.get("containerStatuses") or ())]
    ends = [(entry.get("state") or {}).get("terminated") for entry in statuses]
    ended: Mapping[str, object] = next((end for end in ends if end and end.get("exitCode")), {})
    code = ended.get("exitCode")
    return Failure(
        pod=str(pod["metadata"]["name"]),
        role=role,
        exit_code=code if isinstance(code, int) else None,
        reason=str(status.get("reason") or ended.get("reason") or ""),
        message=str(status.get("message") or ended.get("message") or ""),
    )


def rules_of(details: Sequence[Object], problems: list[str]) -> tuple[Rule, ...]:
    """Parse the rules of a specification; append error messages to ``problems``."""
    return tuple(_rule(entry, f"spec.failurePolicy.rules[{index}]", problems) for index, entry in enumerate(details))


def _rule(entry: Object, where: str, problems: list[str]) -> Rule:
    action = str(entry.get("action", ""))
    if action not in set(Verdict):
        problems.append(f'{where}.action is "{action}". Write one of {", ".join(Verdict)}.')
        action = Verdict.FAIL
    codes = []
    for text in map(str, entry.get("exitCodes") or ()):
        found = _CODES.fullmatch(text)
        if found is None:
            problems.append(f'{where}.exitCodes has "{text}". Write a code such as 137, or a range such as "128-255".')
            continue
        codes.append(range(int(found[1]), int(found[2] or found[1]) + 1))
    return Rule(
        Verdict(action),
        frozenset(entry.get("roles") or ()),
        tuple(codes) or ((range(0),) if entry.get("exitCodes") else ()),
        frozenset(entry.get("reasons") or ()),
    )
