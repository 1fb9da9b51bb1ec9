"""Local bundles: a folder with the files of a code snapshot, and an interpreter with the requirements.

``build`` never waits; it is polled until it returns a result. Bundles are named by the snapshot's digest, environments
by the hash of their requirements, so that a second attempt or another job reuses them. Installation runs in a separate
process (``jobs/builds/pip_install.py``), which survives a restart of the portal and runs no code of the user.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import importlib.util
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path

from django.conf import settings

from jobs.builds import pip_install, pip_output
from jobs.frameworks.definitions import NATIVE, TABLE
from jobs.frameworks.requirements_check import lacking
from jobs.launch import planner
from runtime.messages import from_json

PYTHON = Path(sys.executable)  # of the platform's own roles


def directories() -> tuple[Path, Path]:
    """Return the directories of the bundles and of the environments.

    The modification time of an entry is its last use, for ``jobs/maintenance/garbage_collection.py``.
    """
    return Path(settings.DATA_DIR) / "bundles", Path(settings.DATA_DIR) / "environments"


def bundle_folder(digest: str) -> Path:
    return directories()[0] / digest


def environment_folder(requirements: tuple[str, ...], framework: str = NATIVE) -> Path:
    chosen = (*_alone(framework), *pip_install.READING) if _alone(framework) else ()
    recipe = json.dumps([sys.version_info[:3], sys.prefix, sorted(requirements), *chosen])
    return directories()[1] / hashlib.sha256(recipe.encode()).hexdigest()[:32]


def write_bundle(digest: str, files: Mapping[str, str]) -> Path:
    """Write the bundle of a snapshot; return its folder. Raises OSError."""
    return write_files(bundle_folder(digest), files)


def write_files(folder: Path, files: Mapping[str, str]) -> Path:
    """Write the files to a folder atomically, unless it exists; return the folder. Raises OSError."""
    if _is_there(folder):
        return folder
    folder.parent.mkdir(parents=True, exist_ok=True)
    fresh = Path(tempfile.mkdtemp(prefix=".making-", dir=folder.parent))
    try:
        for path, text in files.items():
            target = fresh / path
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_text(text, encoding="utf-8", newline="")
        fresh.chmod(0o755)
        _move(fresh, folder)
    finally:
        shutil.rmtree(fresh, ignore_errors=True)
    return folder


def _is_there(folder: Path) -> bool:
    """Return whether the folder exists, and update its time of last use."""
    try:
        os.utime(folder)
    except FileNotFoundError:
        return False
    return True


def _move(fresh: Path, folder: Path) -> None:
    try:
        fresh.rename(folder)
    except OSError:
        # Another process was faster; the content is the same.
        if not folder.is_dir():
            raise


def build(
    digest: str, files: Mapping[str, str], requirements: tuple[str, ...], framework: str = NATIVE
) -> planner.BuildView:
    """Start the build, or return its present state. Raises OSError if the data directory cannot be written."""
    if problem := lacking(framework, requirements, has_module=_has(TABLE[framework].module)):
        return planner.BuildView(problem=problem)
    bundle = write_bundle(digest, files)
    if not requirements:
        return planner.BuildView(planner.Build(bundle, PYTHON))
    folder = environment_folder(requirements, framework)
    outcome = folder / "outcome.json"
    if not (_is_there(folder) and outcome.exists()):
        _begin(folder, requirements, _alone(framework))
        return planner.BuildView(log=_log_of(folder))
    result = json.loads(outcome.read_text(encoding="utf-8"))
    if result["ok"]:
        return planner.BuildView(made(digest, requirements, framework), log=_log_of(folder, whole=True))
    log = _log_of(folder, whole=True)
    # The next attempt, of this job or another, installs again: the package may be available by then.
    shutil.rmtree(folder, ignore_errors=True)
    return planner.BuildView(problem=pip_output.explained(from_json(result["why"]), log), log=log)


def made(digest: str, requirements: tuple[str, ...], framework: str = NATIVE) -> planner.Build:
    """Return the result of an earlier ``build``."""
    environment = environment_folder(requirements, framework)
    return planner.Build(bundle_folder(digest), environment / "venv" / "bin" / "python" if requirements else PYTHON)


def _has(module: str) -> bool:
    """Return whether the module can be imported in the platform's own environment."""
    return bool(module) and importlib.util.find_spec(module) is not None


def _alone(framework: str) -> tuple[str, ...]:
    """Return the installer's option for an environment with few of the platform's packages, if the framework needs one.

    Such frameworks install their own releases of NumPy and other packages.
    """
    return (pip_install.ALONE,) if TABLE[framework].together else ()


def _begin(folder: Path, requirements: tuple[str, ...], words: tuple[str, ...]) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    if _is_held(folder / "lock"):
        return
    (folder / "requirements.txt").write_text("\n".join(requirements) + "\n", encoding="utf-8")
    subprocess.Popen(
        (sys.executable, "-I", pip_install.__file__, str(folder), *words),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        cwd=folder,
        env={name: os.environ[name] for name in ("PATH", "HOME", "LANG", *pip_variables()) if name in os.environ},
        start_new_session=True,
    )


def give_up(requirements: tuple[str, ...], framework: str = NATIVE) -> None:
    """Kill the installer of these requirements, if it runs; the next ``build`` starts it again. Raises OSError."""
    _kill(environment_folder(requirements, framework) / "lock")


def end_all() -> None:
    """Kill all running installers with their child processes; the next ``build`` starts them again."""
    for lock in directories()[1].glob("*/lock"):
        _kill(lock)


def _kill(lock: Path) -> None:
    if lock.exists() and _is_held(lock):
        with contextlib.suppress(ValueError, ProcessLookupError):
            # An installer leads a session, and so a process group.
            os.killpg(int(lock.read_text(encoding="ascii")), signal.SIGKILL)


def pip_variables() -> list[str]:
    """Return the names of the environment variables with the operator's settings for pip: sources and proxies."""
    names = ("HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY", "SSL_CERT_FILE", "REQUESTS_CA_BUNDLE")
    return [name for name in os.environ if name.startswith("PIP_") or name.upper() in names]


def _is_held(lock: Path) -> bool:
    with lock.open("a") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
    return False


def _log_of(folder: Path, *, whole: bool = False) -> tuple[str, ...]:
    try:
        text = (folder / "install.log").read_text(encoding="utf-8", errors="replace")
    except FileNotFoundError:
        return ()
    lines = text.split("\n")
    return tuple(lines if whole and lines[-1] else lines[:-1])
