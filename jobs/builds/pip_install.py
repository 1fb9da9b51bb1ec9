"""Program that creates a Python environment with a job's requirements: ``pip_install.py <folder> [alone]``.

The folder contains ``requirements.txt``. Only built packages are installed (``--only-binary``), so no code of a package
runs here. The output of pip goes to ``install.log``, the result to ``outcome.json``: ``{"ok": bool, "why": "..."}``.
While it runs, the program holds the folder's ``lock``, which contains its process id: if the lock is free and there is
no outcome, no installation runs. ``alone``: of the platform's packages, the environment includes only ``READING``.
Standard library only.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import subprocess
import sys
import sysconfig
import venv
from collections.abc import Sequence
from pathlib import Path
from typing import IO, Any

# A message in the form of ``runtime.messages.to_json``.
Message = dict[str, Any]
# Messages of ``jobs.messages.cluster`` by their codes: this program runs without the platform's catalogues.
MESSAGES = {
    "environment_not_created": "The environment could not be created: {error}.",
    "installation_timed_out_minutes": "The installation took more than {count} minutes and was stopped.",
    "requirements_not_installed": "The requirements could not be installed: {error}",
}

SECONDS = 600
LAST_LINES = 5
ALONE = "alone"
# Folders of the packages with which the runtime reads data in every job. They depend on no other package.
READING = ("cramjam", "google_crc32c", "google_crc32c.libs")


def main(folder: Path, words: Sequence[str] = ()) -> int:
    with (folder / "lock").open("a") as lock, (folder / "install.log").open("a", encoding="utf-8") as log:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return 0
        lock.truncate(0)
        lock.write(str(os.getpid()))
        lock.flush()
        if not (folder / "outcome.json").exists():
            _write_outcome(folder, _install(folder, log, alone=ALONE in words))
    return 0


def _install(folder: Path, log: IO[str], *, alone: bool) -> Message | None:
    """Create the environment and install the requirements. Return a message, or None if it succeeded."""
    target = folder / "venv"
    try:
        venv.create(target, clear=True, symlinks=True, with_pip=False)
    except OSError as error:
        return _message("environment_not_created", error=str(error.strerror))
    _inherit(target, READING if alone else ())
    command = (
        sys.executable,
        *("-m", "pip", f"--python={target / 'bin' / 'python'}", "install"),
        *("--only-binary=:all:", "--no-input", "--no-color", "--disable-pip-version-check", "--progress-bar=off"),
        *("-r", str(folder / "requirements.txt")),
    )
    try:
        done = subprocess.run(command, stdout=log, stderr=log, stdin=subprocess.DEVNULL, timeout=SECONDS, check=False)
    except subprocess.TimeoutExpired:
        return _message("installation_timed_out_minutes", count=SECONDS // 60)
    return None if done.returncode == 0 else _last_lines(folder)


def _message(code: str, **params: str | int) -> Message:
    return {"code": f"cluster.{code}", "params": params, "text": MESSAGES[code].format(**params)}


def _inherit(target: Path, names: Sequence[str]) -> None:
    """Add the platform's own packages to the search path, after those of the job: all, or those with the names."""
    versioned = f"python{sys.version_info.major}.{sys.version_info.minor}"
    packages, platform = target / "lib" / versioned / "site-packages", Path(sysconfig.get_path("platlib"))
    if names:
        chosen = target / "platform"
        chosen.mkdir()
        for name in names:
            (chosen / name).symlink_to(platform / name)
        platform = chosen
    (packages / "platform.pth").write_text(f"{platform}\n", encoding="utf-8")


def _last_lines(folder: Path) -> Message:
    lines = (folder / "install.log").read_text(encoding="utf-8", errors="replace").strip().splitlines()
    return _message("requirements_not_installed", error=" / ".join(lines[-LAST_LINES:]))


def _write_outcome(folder: Path, problem: Message | None) -> None:
    fresh = folder / "outcome.json.part"
    fresh.write_text(json.dumps({"ok": problem is None, "why": problem or ""}), encoding="utf-8")
    with contextlib.suppress(FileNotFoundError):
        fresh.replace(folder / "outcome.json")


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), sys.argv[2:]))
