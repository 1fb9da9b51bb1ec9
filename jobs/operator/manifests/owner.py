"""Owner reference and metadata of child objects."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from jobs.operator.model import names
from jobs.operator.model.spec import PaddleJob


def owned(
    job: PaddleJob, name: str, labels: Mapping[str, str] | None = None, annotations: Mapping[str, str] | None = None
) -> dict[str, Any]:
    """Return the metadata of a child object, which is deleted with the job and found by the job's UID."""
    metadata: dict[str, Any] = {
        "name": name,
        "namespace": job.namespace,
        "labels": {names.JOB_LABEL: job.name, **(labels or {})},
        "ownerReferences": [reference(job)],
    }
    if annotations:
        metadata["annotations"] = dict(annotations)
    return metadata


def reference(job: PaddleJob) -> dict[str, Any]:
    return {
        "apiVersion": names.API_VERSION,
        "kind": names.KIND,
        "name": job.name,
        "uid": job.uid,
        "controller": True,
        "blockOwnerDeletion": True,
    }
