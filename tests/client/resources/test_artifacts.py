"""Artifacts of jobs."""

from __future__ import annotations

import hashlib
from pathlib import Path

import httpx
import pytest

from regatta.errors import Missing, Unreachable
from tests.client.portal import Answer, client, ok

ARTIFACTS = "GET /api/v1/jobs/j1/artifacts"
PAGES = (("a", "more"), ("b", None))


def artifact(content: bytes, name: str = "model.npz") -> Answer:
    digest = hashlib.sha256(content).hexdigest()
    return ok({"artifacts": [{"name": name, "size": len(content), "sha256": digest}]})


def test_a_download_is_complete(tmp_path: Path) -> None:
    fetch = "GET /api/v1/jobs/j1/artifacts/model.npz"
    api, _, _ = client({ARTIFACTS: [artifact(b"weights")], fetch: [httpx.Response(200, content=b"weights")]})
    api.jobs.artifacts.download("j1", "model.npz", tmp_path / "m.npz")
    assert (tmp_path / "m.npz").read_bytes() == b"weights"


@pytest.mark.parametrize("answer", [httpx.Response(200, content=b"weig"), httpx.ReadError("cut")])
def test_a_damaged_download_leaves_nothing(tmp_path: Path, answer: Answer) -> None:
    api, _, _ = client({ARTIFACTS: [artifact(b"weights")], "GET /api/v1/jobs/j1/artifacts/model.npz": [answer]})
    with pytest.raises(Unreachable):
        api.jobs.artifacts.download("j1", "model.npz", tmp_path / "m.npz")
    assert list(tmp_path.iterdir()) == []


def test_artifacts_of_all_pages_are_read() -> None:
    pages = [{"artifacts": [{"name": name, "size": 1, "sha256": "x"}], "next": more} for name, more in PAGES]
    api, _, _ = client({ARTIFACTS: [ok(page) for page in pages]})
    assert [artifact.name for artifact in api.jobs.artifacts.list("j1")] == ["a", "b"]


def test_an_unknown_artifact_is_an_error(tmp_path: Path) -> None:
    api, _, _ = client({ARTIFACTS: [artifact(b"")]})
    with pytest.raises(Missing, match="no artifact 'other'"):
        api.jobs.artifacts.download("j1", "other", tmp_path / "x")
