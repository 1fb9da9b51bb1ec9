"""Launcher of image builds: they run in a separate program that survives a restart of the portal (``worker.py``).

The settings name the registry and the builder. While an image is built, there is a folder named by its tag below
``images/`` of the data directory. Whether an image exists is decided by the registry alone.
"""

from __future__ import annotations

import contextlib
import fcntl
import functools
import hashlib
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from django.conf import settings

from jobs.builds import code_snapshots, local_bundle
from jobs.builds.images import build_request, plan
from jobs.builds.images.registry_client import Credentials, Registry, RegistryError
from jobs.builds.images.runtime_wheels import packages
from jobs.launch.planner import Build, BuildView
from jobs.models import CodeSnapshot
from runtime import contract
from runtime.messages import from_json

PYTHON = plan.PLATFORM / "bin" / "python"
_LOOK_SECONDS = 5.0
_ROOT = Path(__file__).parents[3]
# Variables by which a process in a pod finds its cluster.
_IN_CLUSTER = ("KUBERNETES_SERVICE_HOST", "KUBERNETES_SERVICE_PORT")
_INHERITED = ("PATH", "HOME", "LANG", "KUBECONFIG", "SSL_CERT_FILE", "SSL_CERT_DIR", *_IN_CLUSTER)


def images_directory() -> Path:
    return Path(settings.DATA_DIR) / "images"


def plan_of(namespace: str, digest: str, requirements: tuple[str, ...], *, alone: bool = False) -> plan.Plan:
    platform = plan.Platform(settings.IMAGE_REGISTRY, settings.BASE_IMAGE, runtime_digest(), packages())
    return plan.plan(platform, namespace, digest, requirements, alone=alone)


@functools.cache
def runtime_digest() -> str:
    """Return the digest of the runtime's files in images and of the program that installs them."""
    runtime = Path(contract.__file__).parent
    files = [path for path in sorted(runtime.rglob("*")) if path.is_file() and "__pycache__" not in path.parts]
    found = hashlib.sha256()
    for path in (*files, Path(__file__).with_name("build_step.py")):
        found.update(f"{path.relative_to(_ROOT)}\0{hashlib.sha256(path.read_bytes()).hexdigest()}\n".encode())
    return found.hexdigest()


def made(image_plan: plan.Plan) -> Build:
    """Return the build result of the finished image."""
    return Build(Path(plan.CODE), Path(image_plan.python), image_plan.reference)


def build(image_plan: plan.Plan, snapshot: CodeSnapshot) -> BuildView:
    """Start the build, or return its present state.

    Raises OSError if the data directory cannot be written, StorageError, NotFound.
    """
    folder = images_directory() / image_plan.tag
    if (folder / build_request.OUTCOME).exists():
        return _outcome(folder, image_plan)
    if not folder.exists() and _is_there(image_plan):
        return BuildView(made(image_plan))
    with _lock(folder) as lock:
        if lock is not None and not (folder / build_request.OUTCOME).exists():
            _begin(folder, image_plan, snapshot, lock)
    return BuildView(log=_log_of(folder))


def _outcome(folder: Path, image_plan: plan.Plan) -> BuildView:
    """Return the outcome and remove the folder: the next call queries the registry, or builds again."""
    outcome = json.loads((folder / build_request.OUTCOME).read_text(encoding="utf-8"))
    log = _log_of(folder, whole=True)
    shutil.rmtree(folder, ignore_errors=True)
    return (
        BuildView(made(image_plan), log=log) if outcome["ok"] else BuildView(problem=from_json(outcome["why"]), log=log)
    )


def _is_there(image_plan: plan.Plan) -> bool:
    """Return whether the image exists. If the registry does not answer, False: the worker waits for it instead."""
    _, repository, tag = plan.parts(image_plan.reference)
    try:
        return registry(seconds=_LOOK_SECONDS).has_manifest(repository, tag)
    except RegistryError:
        return False


def registry(*, seconds: float) -> Registry:
    """Return the registry of this installation."""
    host = settings.IMAGE_REGISTRY.partition("/")[0]
    file = Path(settings.REGISTRY_CREDENTIALS) if settings.REGISTRY_CREDENTIALS else None
    credentials = Credentials.read(file, host)
    return Registry(host, insecure=settings.REGISTRY_INSECURE, credentials=credentials, seconds=seconds)


def _begin(folder: Path, image_plan: plan.Plan, snapshot: CodeSnapshot, lock: int) -> None:
    """Start the worker, which inherits the lock: it is held without interruption."""
    local_bundle.write_files(folder / "code", code_snapshots.files_of(snapshot))
    _order(image_plan).write(folder)
    (folder / build_request.GIVEN_UP).unlink(missing_ok=True)
    with (folder / build_request.LOG).open("a") as log:
        subprocess.Popen(
            (sys.executable, "-m", "jobs.builds.images.worker", str(folder), str(lock)),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=log,
            cwd=_ROOT,
            env={name: os.environ[name] for name in _INHERITED if name in os.environ},
            start_new_session=True,
            pass_fds=(lock,),
        )


def _order(image_plan: plan.Plan) -> build_request.Order:
    return build_request.Order(
        images=image_plan.images,
        registry=settings.IMAGE_REGISTRY.partition("/")[0],
        insecure=settings.REGISTRY_INSECURE,
        credentials=settings.REGISTRY_CREDENTIALS,
        seconds=settings.BUILD_SECONDS,
        bytes=settings.IMAGE_LIMIT_BYTES,
        builder=settings.IMAGE_BUILDER,
        storage=str(Path(settings.DATA_DIR) / "buildah"),
        pip={name: os.environ[name] for name in local_bundle.pip_variables()},
        kubeconfig=settings.KUBECONFIG,
        namespace=settings.BUILD_NAMESPACE,
        tools=settings.BUILD_TOOLS_IMAGE,
        secret=settings.BUILD_SECRET,
    )


def give_up(image_plan: plan.Plan) -> None:
    """Stop the build of the image if it runs."""
    _end(images_directory() / image_plan.tag)


def end_all() -> None:
    for folder in images_directory().glob("*"):
        _end(folder)


def _end(folder: Path) -> None:
    """Request the end of the worker. A file and no signal: the worker may run in another pod with the same volume."""
    if _is_held(folder):
        with contextlib.suppress(FileNotFoundError):
            (folder / build_request.GIVEN_UP).touch()


@contextlib.contextmanager
def _lock(folder: Path) -> Iterator[int | None]:
    """Lock the folder; yield the lock's file descriptor, or None if another process holds it."""
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / build_request.LOCK).open("a+") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            yield None
        else:
            yield file.fileno()


def _is_held(folder: Path) -> bool:
    if not folder.exists():
        return False
    with _lock(folder) as lock:
        return lock is None


def _log_of(folder: Path, *, whole: bool = False) -> tuple[str, ...]:
    try:
        text = (folder / build_request.LOG).read_text(encoding="utf-8", errors="replace")
    except FileNotFoundError:
        return ()
    lines = text.split("\n")
    return tuple(lines if whole and lines[-1] else lines[:-1])
