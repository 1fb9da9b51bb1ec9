"""Has the images of jobs made, by a program of its own that outlives the portal (``worker.py``). The settings say where
they are kept and how they are made.

While one is made there is a folder with its tag below ``images/`` of the data directory. Whether there is an image the
registry says, and nobody else.
"""

from __future__ import annotations

import contextlib
import fcntl
import functools
import hashlib
import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path

from django.conf import settings

from jobs.builds import code_snapshots, local_bundle
from jobs.builds.images import build_request, plan
from jobs.builds.images.registry_client import Credentials, Registry, RegistryError
from jobs.launch.planner import Build, BuildView
from jobs.models import CodeSnapshot
from runtime import contract

# In the versions that the portal itself has.
PACKAGES = ("numpy", "etcd-sdk-python", "protobuf")
PYTHON = plan.PLATFORM / "bin" / "python"
_LOOK_SECONDS = 5.0
_ROOT = Path(__file__).parents[3]
# By these a process of a pod finds its cluster.
_IN_CLUSTER = ("KUBERNETES_SERVICE_HOST", "KUBERNETES_SERVICE_PORT")
_INHERITED = ("PATH", "HOME", "LANG", "KUBECONFIG", "SSL_CERT_FILE", "SSL_CERT_DIR", *_IN_CLUSTER)


def images_directory() -> Path:
    return Path(settings.DATA_DIR) / "images"


def plan_of(namespace: str, digest: str, requirements: tuple[str, ...], *, alone: bool = False) -> plan.Plan:
    platform = plan.Platform(settings.IMAGE_REGISTRY, settings.BASE_IMAGE, runtime_digest(), packages())
    return plan.plan(platform, namespace, digest, requirements, alone=alone)


def packages() -> tuple[str, ...]:
    """What the runtime needs of others, as requirements."""
    return tuple(f"{name}=={version(name)}" for name in PACKAGES)


@functools.cache
def runtime_digest() -> str:
    """Of all that images have of the runtime, and of the program that puts it there."""
    runtime = Path(contract.__file__).parent
    files = [path for path in sorted(runtime.rglob("*")) if path.is_file() and "__pycache__" not in path.parts]
    found = hashlib.sha256()
    for path in (*files, Path(__file__).with_name("build_step.py")):
        found.update(f"{path.relative_to(_ROOT)}\0{hashlib.sha256(path.read_bytes()).hexdigest()}\n".encode())
    return found.hexdigest()


def made(image_plan: plan.Plan) -> Build:
    """What there is once the image is made."""
    return Build(Path(plan.CODE), Path(image_plan.python), image_plan.reference)


def build(image_plan: plan.Plan, snapshot: CodeSnapshot) -> BuildView:
    """Begin or look on. Raises OSError where the data directory cannot be written, StorageError, NotFound."""
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
    """Told once: after that the registry is asked, or it is tried anew."""
    outcome = json.loads((folder / build_request.OUTCOME).read_text(encoding="utf-8"))
    log = _log_of(folder, whole=True)
    shutil.rmtree(folder, ignore_errors=True)
    return BuildView(made(image_plan), log=log) if outcome["ok"] else BuildView(problem=outcome["why"], log=log)


def _is_there(image_plan: plan.Plan) -> bool:
    """Whether nothing is left to make. A registry that does not answer is waited for where it holds up nobody."""
    _, repository, tag = plan.parts(image_plan.reference)
    try:
        return registry(seconds=_LOOK_SECONDS).has_manifest(repository, tag)
    except RegistryError:
        return False


def registry(*, seconds: float) -> Registry:
    """The registry of this installation."""
    host = settings.IMAGE_REGISTRY.partition("/")[0]
    file = Path(settings.REGISTRY_CREDENTIALS) if settings.REGISTRY_CREDENTIALS else None
    credentials = Credentials.read(file, host)
    return Registry(host, insecure=settings.REGISTRY_INSECURE, credentials=credentials, seconds=seconds)


def _begin(folder: Path, image_plan: plan.Plan, snapshot: CodeSnapshot, lock: int) -> None:
    """The process inherits the lock: there is no moment at which nobody holds it."""
    local_bundle.write_files(folder / "code", code_snapshots.files_of(snapshot))
    _order(image_plan).write(folder)
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
    """End making it, where that goes on."""
    _end(images_directory() / image_plan.tag)


def end_all() -> None:
    for folder in images_directory().glob("*"):
        _end(folder)


def _end(folder: Path) -> None:
    """Ask its process to end, with all that it has started."""
    if _is_held(folder):
        with contextlib.suppress(ValueError, ProcessLookupError, FileNotFoundError):
            # It leads a session of its own, and so a group.
            os.killpg(int((folder / build_request.LOCK).read_text(encoding="ascii")), signal.SIGTERM)


@contextlib.contextmanager
def _lock(folder: Path) -> Iterator[int | None]:
    """The descriptor of the folder's lock; None where a process holds it."""
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
