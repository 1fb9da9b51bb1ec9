"""Models that jobs leave, loaded without running code from them."""

from __future__ import annotations

import hashlib
import io
import pickle
import sys
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType
from typing import Any

import httpx
import numpy as np
import pytest

from regatta import Job
from regatta.errors import Missing, PortalError
from tests.client.portal import client, job, ok

LIST = "GET /api/v1/jobs/j1/artifacts"


def saved(monkeypatch: pytest.MonkeyPatch, cache: Path, *, state: str = "SUCCEEDED", **files: bytes) -> Job:
    """Return a job with these artifacts; the first underscore of a name is its dot."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(cache))
    named = {name.replace("_", ".", 1): content for name, content in files.items()}
    listed = [
        {"name": name, "size": len(content), "sha256": hashlib.sha256(content).hexdigest()}
        for name, content in named.items()
    ]
    answers: dict[str, list[Any]] = {LIST: [ok({"artifacts": listed})], "GET /api/v1/jobs/j1": [ok(job(state))]}
    for name, content in named.items():
        answers[f"{LIST}/{name}"] = [httpx.Response(200, content=content)]
    return Job.from_json(job(state), client(answers)[0].jobs)


def npz(**arrays: Any) -> bytes:
    file = io.BytesIO()
    np.savez(file, **arrays)
    return file.getvalue()


class Harm:
    def __reduce__(self) -> tuple[Any, tuple[str]]:
        return pytest.fail, ("the model was unpickled",)


def test_a_native_model_is_a_dict_of_arrays(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    model = saved(monkeypatch, tmp_path, model_npz=npz(w=np.eye(2))).model()
    assert {name: array.tolist() for name, array in model.items()} == {"w": [[1.0, 0.0], [0.0, 1.0]]}


def test_other_artifacts_do_not_matter(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    assert list(saved(monkeypatch, tmp_path, notes_txt=b"", model_npz=npz(w=1)).model()) == ["w"]


@pytest.mark.invariant("Loading the model of a job runs no code from it.")
def test_an_npz_file_with_a_pickle_is_refused(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    array = np.empty(1, object)
    array[0] = Harm()
    with pytest.raises(PortalError, match=r"model\.npz cannot be loaded safely: .* The file is at"):
        saved(monkeypatch, tmp_path, model_npz=npz(w=array)).model()


def test_an_unknown_kind_is_a_path_and_a_pickle_is_not_opened(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    content = pickle.dumps(Harm())
    path = saved(monkeypatch, tmp_path, model_pkl=content).model()
    assert path.read_bytes() == content


@pytest.mark.parametrize("content", [b"", b"PK\x03\x04 cut", pickle.dumps(Harm())])
def test_a_file_that_is_none_of_its_kind_is_refused(
    content: bytes, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    with pytest.raises(PortalError, match=r"model\.npz cannot be loaded safely: .* The file is at"):
        saved(monkeypatch, tmp_path, model_npz=content).model()


@pytest.mark.parametrize("version", ["1.13.1", "2.5.1+cu124"])
def test_a_torch_whose_restricted_reader_runs_code_is_not_used(
    version: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    old = ModuleType("torch")
    old.__spec__ = ModuleSpec("torch", None)
    old.__dict__["__version__"] = version
    monkeypatch.setitem(sys.modules, "torch", old)
    with pytest.raises(PortalError, match=r"can run code\. Install PyTorch 2\.6 or newer\. The file is at"):
        saved(monkeypatch, tmp_path, model_pt=b"").model()


@pytest.mark.torch
def test_a_torch_file_with_more_than_weights_is_refused(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    torch = pytest.importorskip("torch", reason="group torch: torch is not installed (pip install torch==2.13.0)")
    file = io.BytesIO()
    torch.save(Harm(), file)
    with pytest.raises(PortalError, match="contains more than weights"):
        saved(monkeypatch, tmp_path, model_pt=file.getvalue()).model()


@pytest.mark.parametrize(
    ("files", "state", "said"),
    [
        ({}, "SUCCEEDED", r'saved no model. A script saves one with job.save_model\("model.npz"\).'),
        ({"notes_txt": b""}, "SUCCEEDED", r"Its artifacts are: notes.txt. Name one: job.model\(NAME\)"),
        ({}, "RUNNING", r"has no model yet. Wait for its end: job.wait\(\).model\(\)"),
        ({"a_npz": b"", "b_npz": b""}, "SUCCEEDED", r"several models: a.npz, b.npz. Name one: job.model\('a.npz'\)"),
    ],
)
def test_without_a_model_the_next_step_is_named(
    files: dict[str, bytes], state: str, said: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    with pytest.raises(Missing, match=said):
        saved(monkeypatch, tmp_path, state=state, **files).model()
