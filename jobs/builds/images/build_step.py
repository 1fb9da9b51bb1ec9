"""Program that runs in the parent image and adds files: ``build_step.py <folder>``. Python 3.11, standard library.

The folder is mounted and does not become part of the image. It contains ``step.json``::

    {"kind": "runtime" | "environment", "target": "/opt/...", "requirements": [...], "platform": "/opt/regatta",
     "seconds": 900, "bytes": 8589934592, "pip": {"PIP_INDEX_URL": ...}}

and ``tool/pip``, so that the image needs no pip of its own; for the runtime also ``tool/runtime``. ``tool/wheels`` may
have the runtime's packages: if this Python can install them, no package index is used. Only built packages are
installed: no code of a package runs here. The output of pip goes to standard output line by line. On failure, the
last line is ``MARK`` followed by a message for the user.

The runtime's image also gets the bytecode of all modules that processes import when they start. In pods the root
filesystem is read-only, and ``python:3.11-slim`` contains no bytecode of the standard library: without it every process
would compile those modules, which takes half a second.
"""

from __future__ import annotations

import contextlib
import json
import os
import py_compile
import shutil
import subprocess
import sys
import sysconfig
import threading
import time
import venv
from collections import deque
from collections.abc import Iterable, Iterator
from importlib.util import cache_from_source
from itertools import product
from pathlib import Path
from typing import Any

MARK = "regatta-build: "
LAST_LINES = 5
_REMEMBERED = 200
# pip's lines about an index that does not answer, and about a requirement that no index has.
_NO_CONNECTION = "after connection broken by"
_MISSING = "ERROR: No matching distribution found for "
OLDEST = (3, 11)
_LOOK_SECONDS = 0.5
# Packages of the standard library that are not compiled: no process imports them when it starts.
_NOT_COMPILED = frozenset(
    {"__pycache__", "ensurepip", "idlelib", "lib2to3", "pydoc_data", "site-packages", "dist-packages", "test", "tests"}
    | {"tkinter", "turtledemo"}
)
# Messages of ``jobs.messages.cluster`` by their codes: this program runs without the platform's catalogues.
MESSAGES = {
    "base_image_python_too_old": (
        "The base image has Python {version}; jobs need Python {least} or newer. Set another base image."
    ),
    "base_image_unusable": "The base image cannot run the platform's processes: {error}",
    "environment_not_created": "The environment could not be created: {error}.",
    "image_not_pushed": "The image could not be pushed: {error}",
    "installation_timed_out": "Installing the requirements took more than {count} seconds and was stopped.",
    "no_package_index": (
        "{requirement} could not be installed: no package index answered. Ask an admin for an index that builds can "
        "reach (PIP_INDEX_URL)."
    ),
    "requirements_not_installed": "The requirements could not be installed: {error}",
    "requirements_too_large": "The requirements exceed the limit of {size} GiB for an image. Specify fewer packages.",
}
_IMPORT_CHECK = (
    "import sys, cramjam, google_crc32c, numpy, runtime.agent, runtime.dist, runtime.master, runtime.pserver"
)


class Problem(Exception):
    """Failure of the step, with a message of ``MESSAGES``."""

    def __init__(self, code: str, **params: str) -> None:
        super().__init__(MESSAGES[code].format(**params))
        self.code, self.params = code, params

    def line(self) -> str:
        """Return the last line of the output: ``MARK`` and the message as JSON (``runtime.messages.to_json``)."""
        return MARK + json.dumps({"code": f"cluster.{self.code}", "params": self.params, "text": str(self)})


def main(folder: Path) -> int:
    return made(json.loads((folder / "step.json").read_text(encoding="utf-8")), folder / "tool")


def made(step: dict[str, Any], tool: Path, root: Path = Path("/")) -> int:
    """Run the step. Return 0, or 1 after printing the message as the last line.

    ``root``: the directory for files that belong elsewhere in the image than in the step's target.
    """
    try:
        if sys.version_info < OLDEST:
            have, need = ".".join(map(str, sys.version_info[:2])), ".".join(map(str, OLDEST))
            raise Problem("base_image_python_too_old", version=have, least=need)
        _make(step, tool, root)
    except Problem as problem:
        print(problem.line(), flush=True)  # noqa: T201  the build's log
        return 1
    except OSError as error:
        failed = Problem("environment_not_created", error=str(error))
        print(failed.line(), flush=True)  # noqa: T201
        return 1
    return 0


def _make(step: dict[str, Any], tool: Path, root: Path) -> None:
    target = Path(step["target"])
    venv.create(target, symlinks=True, with_pip=False)
    if step["kind"] == "environment":
        platform = next(Path(step["platform"]).glob("lib/python3*/site-packages"))
        if step.get("alone"):
            (_packages(target) / "runtime").symlink_to(platform / "runtime")
        else:
            # The platform's packages stay on the search path, after those of the job.
            (_packages(target) / "platform.pth").write_text(f"{platform}\n", encoding="utf-8")
    if step["requirements"]:
        _install(step, tool, target)
    if step["kind"] == "runtime":
        shutil.copytree(tool / "runtime", _packages(target) / "runtime", ignore=shutil.ignore_patterns("__pycache__"))
        _compile(_packages(target) / "runtime", Path("/"))
        _compile(Path(os.path.realpath(sysconfig.get_path("stdlib"))), root)
        _check(target)


def _compile(library: Path, root: Path) -> None:
    """Compile the modules that have no bytecode yet, into Python's cache directories below ``root``."""
    for where, folders, files in os.walk(library):
        folders[:] = sorted(set(folders) - _NOT_COMPILED)
        for source in (Path(where, name) for name in sorted(files) if name.endswith(".py")):
            place = Path(cache_from_source(str(source)))
            if place.exists():
                continue
            # Images do not change, and layers drop modification times: bytecode is not checked against its source.
            mode = py_compile.PycInvalidationMode.UNCHECKED_HASH
            compiled = root / place.relative_to("/")
            compiled.parent.mkdir(parents=True, exist_ok=True)
            with contextlib.suppress(py_compile.PyCompileError):  # templates, which are no modules
                py_compile.compile(str(source), str(compiled), doraise=True, invalidation_mode=mode)


def _packages(target: Path) -> Path:
    versioned = f"python{sys.version_info.major}.{sys.version_info.minor}"
    return target / "lib" / versioned / "site-packages"


def unfit(wheels: Iterable[str], supported: Iterable[str]) -> list[str]:
    """Return the wheels, by file name, that no tag of a Python supports, such as ``cp311-cp311-linux_x86_64``. Pure."""
    known = frozenset(supported)
    return sorted(wheel for wheel in wheels if known.isdisjoint(_tags(wheel)))


def _tags(wheel: str) -> Iterator[str]:
    """Yield the tags in the name of a wheel: each part may list several values, separated by dots."""
    parts = (part.split(".") for part in wheel.removesuffix(".whl").split("-")[-3:])
    return ("-".join(tag) for tag in product(*parts))


def _shipped(step: dict[str, Any], tool: Path) -> Path | None:
    """Return the folder of wheels to install the runtime from; None: use pip's settings. Prints the decision."""
    wheels = [path.name for path in (tool / "wheels").glob("*.whl")]
    if step["kind"] != "runtime" or not wheels:
        return None
    sys.path.insert(0, str(tool))
    from pip._vendor.packaging.tags import sys_tags

    others = unfit(wheels, map(str, sys_tags()))
    if others:
        have = ".".join(map(str, sys.version_info[:2]))
        print(f"The portal's image has no packages for Python {have} of the base image ({others[0]}).", flush=True)  # noqa: T201
        print("They are installed from the package index.", flush=True)  # noqa: T201
        return None
    print("The runtime's packages are installed from the portal's image, without a package index.", flush=True)  # noqa: T201
    return tool / "wheels"


def failure(output: Iterable[str], has_index: bool) -> Problem:
    """Return the reason why pip failed, from its output. Pure."""
    lines = [line.strip() for line in output if line.strip()]
    is_silent = not has_index or any(_NO_CONNECTION in line for line in lines)
    missing = [line.removeprefix(_MISSING) for line in lines if line.startswith(_MISSING)]
    if is_silent and missing:
        return Problem("no_package_index", requirement=missing[0])
    return Problem("requirements_not_installed", error=" / ".join(lines[-LAST_LINES:]))


def _install(step: dict[str, Any], tool: Path, target: Path) -> None:
    wheels = _shipped(step, tool)
    pip = step["pip"] if wheels is None else {"PIP_NO_INDEX": "1", "PIP_FIND_LINKS": str(wheels)}
    command = (
        # With the environment's own interpreter pip is a single process, which can be killed.
        *(str(target / "bin" / "python"), "-m", "pip", "install"),
        *("--only-binary=:all:", "--no-input", "--no-color", "--disable-pip-version-check", "--progress-bar=off"),
        *("--no-cache-dir", *step["requirements"]),
    )
    environment = {"PATH": os.environ.get("PATH", os.defpath), "HOME": "/tmp", "TMPDIR": str(_scratch(target))}  # noqa: S108
    environment |= {**pip, "PYTHONPATH": str(tool), "PYTHONUNBUFFERED": "1", "SOURCE_DATE_EPOCH": "315532800"}
    process = subprocess.Popen(
        command, env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        errors="replace",
    )  # fmt: skip
    watch = _Watch(process, target, step["seconds"], step["bytes"])
    watch.start()
    assert process.stdout is not None  # noqa: S101  it is a pipe
    last: deque[str] = deque(maxlen=_REMEMBERED)
    for line in process.stdout:
        print(line.rstrip("\n"), flush=True)  # noqa: T201
        last.append(line)
    code = process.wait()
    watch.over.set()
    watch.join()
    shutil.rmtree(_scratch(target), ignore_errors=True)
    if watch.problem:
        raise watch.problem
    if code != 0:
        raise failure(last, has_index="PIP_NO_INDEX" not in pip or "PIP_FIND_LINKS" in pip)
    if size(target) > step["bytes"]:
        raise _too_large(step["bytes"])


def _scratch(target: Path) -> Path:
    """Return the directory in which pip unpacks. Its size counts with that of the installed files."""
    folder = target / ".scratch"
    folder.mkdir(exist_ok=True)
    return folder


class _Watch(threading.Thread):
    """Kills pip when it exceeds the limit of time or of disk space; ``problem`` is the failure then."""

    def __init__(self, process: subprocess.Popen[str], target: Path, seconds: float, most: int) -> None:
        super().__init__(daemon=True)
        self._process, self._target, self._seconds, self._most = process, target, seconds, most
        self.over = threading.Event()
        self.problem: Problem | None = None

    def run(self) -> None:
        deadline = time.monotonic() + self._seconds
        while not self.over.wait(_LOOK_SECONDS):
            if time.monotonic() > deadline:
                self.problem = Problem("installation_timed_out", count=f"{self._seconds:g}")
            elif size(self._target) > self._most:
                self.problem = _too_large(self._most)
            if self.problem:
                self._process.kill()
                return


def _too_large(most: int) -> Problem:
    return Problem("requirements_too_large", size=f"{most / 1024**3:.3g}")


def size(folder: Path) -> int:
    """Return the bytes of all files in a folder; files that vanish meanwhile count as 0."""
    return sum(_sizes(folder))


def _sizes(folder: Path) -> Iterator[int]:
    for where, _, names in os.walk(folder):
        for name in names:
            try:
                yield os.lstat(os.path.join(where, name)).st_size  # noqa: PTH118  many files
            except OSError:
                continue


def _check(target: Path) -> None:
    """Check that the platform can run in the image: a missing C++ library, say, fails the build and not the pods."""
    command = (str(target / "bin" / "python"), "-I", "-c", _IMPORT_CHECK)
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    if done.returncode != 0:
        lines = [line.strip() for line in done.stderr.splitlines() if line.strip()]
        raise Problem("base_image_unusable", error=" / ".join(lines[-LAST_LINES:]))


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
