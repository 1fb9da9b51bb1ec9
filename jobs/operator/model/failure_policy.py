"""What follows when a pod of a job fails. Pure.

The first rule of the job that fits decides, then the rules of all jobs (``DEFAULTS``), then the job's back-off limit.
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
    """How a pod failed: exit code of its first container that failed (None: it did not get so far), reason in a word
    of Kubernetes, and what Kubernetes says about it."""

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
    """Fits a failure that has one of the roles, one of the exit codes and one of the reasons; empty fits all."""

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


# The node's doing, not the job's.
NODE_REASONS = frozenset(
    {"Evicted", "NodeLost", "NodeShutdown", "Shutdown", "Terminated", "Preempting", "UnexpectedAdmissionError"}
    | {"OutOfcpu", "OutOfmemory", "OutOfpods", "OutOfephemeral-storage", "NodeAffinity"}
)
DEFAULTS: Sequence[Rule] = (Rule(Verdict.RESTART_FREE, reasons=NODE_REASONS),)

_FIRST_PAUSE, _LONGEST_PAUSE = 1.0, 300.0
_CODES = re.compile(r"([0-9]{1,3})(?:-([0-9]{1,3}))?", re.ASCII)


def judge(failure: Failure, rules: Sequence[Rule], restarts: int, limit: int | None) -> Verdict:
    """``restarts`` have been counted so far; without a limit a failed pod ends the job, as in paddle-operator."""
    verdict = next((rule.verdict for rule in (*rules, *DEFAULTS) if rule.fits(failure)), Verdict.RESTART)
    if verdict is Verdict.RESTART and restarts >= (limit or 0):
        return Verdict.FAIL
    return verdict


def pause(starts: int) -> float:
    """Seconds to wait before something is started for the ``starts``-th time again."""
    return min(_LONGEST_PAUSE, _FIRST_PAUSE * 2.0 ** min(starts - 1, 16)) if starts > 0 else 0.0


def failure_of(pod: Object, role: str) -> Failure:
    """How a pod in phase Failed failed."""
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
    """The rules of a specification; what is wrong with them is added to ``problems``."""
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
