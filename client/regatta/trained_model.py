"""Model that a job saved: which artifact it is, its download, and loading it without running code from it."""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any

from regatta import tree
from regatta.errors import Missing, PortalError
from regatta.models import Artifact
from regatta.series import package

if TYPE_CHECKING:
    from regatta.job import Job

_SAVE = 'A script saves one with job.save_model("model.npz").'
# Before it, a file could run code in spite of ``weights_only=True`` (CVE-2025-32434).
_SAFE_TORCH = 2, 6
# Ends of names that are models, in the order of preference.
_KINDS = (".npz", ".safetensors", ".pt", ".pth", ".pdparams", ".onnx", ".npy", ".pkl", ".joblib")


def load(job: Job, name: str = "") -> Any:
    """Return the model of a job, see ``Job.model``. Raises Missing, and PortalError for a file that is not loadable."""
    artifact = chosen(job, job.artifacts(), name)
    path = _download(job, artifact)
    read = _READERS.get(path.suffix)
    if read is None:
        return path
    try:
        return read(path)
    except Exception as error:
        # Of a damaged file, readers raise errors of their own, such as zipfile.BadZipFile.
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise PortalError(f"{artifact.name} cannot be loaded safely: {reason}. The file is at {path}") from error


def chosen(job: Job, artifacts: Sequence[Artifact], name: str) -> Artifact:
    """Return the artifact called ``name``; without a name, the only model. Raises Missing with the next step."""
    if name:
        found = [artifact for artifact in artifacts if artifact.name == name]
        if not found:
            names = ", ".join(artifact.name for artifact in artifacts) or "none"
            raise Missing(f"The job has no artifact {name!r}. It has: {names}.")
        return found[0]
    models = [artifact for artifact in artifacts if PurePosixPath(artifact.name).suffix in _KINDS]
    if len(models) > 1:
        listed = ", ".join(artifact.name for artifact in models)
        raise Missing(f"The job has several models: {listed}. Name one: job.model({models[0].name!r})")
    if models:
        return models[0]
    if not job.ended and not job.refresh().ended:
        raise Missing(f"The job is {job.state} and has no model yet. Wait for its end: job.wait().model()")
    others = ", ".join(artifact.name for artifact in artifacts)
    listed = f" Its artifacts are: {others}. Name one: job.model(NAME)." if others else ""
    raise Missing(f"The job has ended and saved no model. {_SAVE}{listed}")


def _download(job: Job, artifact: Artifact) -> Path:
    """Return the path of the file in the user's cache; it is fetched if it is not there with the same content."""
    base = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    target = tree.place_of(base / "regatta" / "models" / job.id, artifact.name)
    if not (target.is_file() and tree.sha256_of(target) == artifact.sha256):
        target.parent.mkdir(parents=True, exist_ok=True)
        job.download(artifact.name, target)
    return target


def _arrays(path: Path) -> dict[str, Any]:
    with package("numpy").load(path, allow_pickle=False) as file:
        return {name: file[name] for name in file.files}


def _array(path: Path) -> Any:
    return package("numpy").load(path, allow_pickle=False)


def _weights(path: Path) -> Any:
    """Load with PyTorch's restricted reader; the path if PyTorch is not installed."""
    if importlib.util.find_spec("torch") is None:
        return path
    import pickle

    torch = package("torch")
    major, minor = (int(part) for part in torch.__version__.split(".")[:2])
    if (major, minor) < _SAFE_TORCH:
        raise ValueError(f"the reader of PyTorch {torch.__version__} can run code. Install PyTorch 2.6 or newer")
    try:
        return torch.load(path, map_location="cpu", weights_only=True)
    except pickle.UnpicklingError as error:
        raise ValueError("it contains more than weights. Save model.state_dict() instead of the model") from error


def _tensors(path: Path) -> Any:
    if importlib.util.find_spec("safetensors") is None:
        return path
    return package("safetensors.numpy").load_file(path)


_READERS: Mapping[str, Callable[[Path], Any]] = {
    ".npz": _arrays,
    ".npy": _array,
    ".pt": _weights,
    ".pth": _weights,
    ".safetensors": _tensors,
}
