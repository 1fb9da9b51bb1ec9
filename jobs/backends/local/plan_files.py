"""Launch plans in files, and files that only their owner may read."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator, Mapping
from datetime import timedelta
from pathlib import Path
from typing import Any
from uuid import uuid4

from jobs.backends.base import AttemptRef, LaunchPlan, ReplicaPlan
from jobs.frameworks.definitions import NATIVE

PLAN_FILE = "plan.json"


def write_plan(attempt: Path, plan: LaunchPlan) -> None:
    body = {
        "ref": [plan.ref.job_id, plan.ref.attempt_id, plan.ref.number, plan.ref.namespace],
        "namespace": plan.namespace,
        "bundle": str(plan.bundle),
        "grace": plan.grace.total_seconds(),
        "log_cap": plan.log_cap,
        "framework": plan.framework,
        "trusted": plan.trusted,
        "replicas": [_replica_to_json(one) for one in plan.replicas],
    }
    write_private(attempt / PLAN_FILE, json.dumps(body))


def read_plan(attempt: Path) -> LaunchPlan | None:
    """Return the plan as it was launched, without the token; None where the attempt is gone."""
    try:
        body = json.loads((attempt / PLAN_FILE).read_text(encoding="utf-8"))
    except (FileNotFoundError, NotADirectoryError):
        return None
    return LaunchPlan(
        ref=AttemptRef(*body["ref"]),
        namespace=body["namespace"],
        bundle=Path(body["bundle"]),
        replicas=tuple(_replicas_from_json(body["replicas"])),
        grace=timedelta(seconds=body["grace"]),
        log_cap=body["log_cap"],
        # Missing in plans of earlier versions.
        framework=body.get("framework", NATIVE),
        trusted=body.get("trusted", False),
    )


def _replica_to_json(replica: ReplicaPlan) -> dict[str, Any]:
    return {**vars(replica), "command": list(replica.command), "environment": dict(replica.environment)}


def _replicas_from_json(bodies: Iterable[Mapping[str, Any]]) -> Iterator[ReplicaPlan]:
    return (ReplicaPlan(**{**body, "command": tuple(body["command"])}) for body in bodies)


def write_private(path: Path, text: str) -> None:
    """Write a file that only its owner may read, atomically."""
    fresh = draft(path)
    descriptor = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
    with os.fdopen(descriptor, "w", encoding="utf-8") as file:
        file.write(text)
    fresh.replace(path)


def write_first(path: Path, text: str) -> None:
    """Write a file that only its owner may read, unless it exists: of concurrent writers the first one wins."""
    fresh = draft(path)
    write_private(fresh, text)
    try:
        path.hardlink_to(fresh)
    except FileExistsError:
        pass
    finally:
        fresh.unlink()


def draft(path: Path) -> Path:
    """Return a unique temporary name beside the file, for concurrent threads and processes."""
    return path.with_name(f".{path.name}.{uuid4().hex}")
