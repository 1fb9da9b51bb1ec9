"""Builder of images with buildah, on this machine.

It runs as root, or as an ordinary account that may create user namespaces and has ids in ``/etc/subuid``. Every command
is a list of arguments.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path
from typing import IO

import pip  # this environment's own

from jobs.builds import pip_output
from jobs.builds.images import build_request, build_step, plan, runtime_wheels
from jobs.builds.images.build_request import Order
from jobs.builds.images.errors import BuildFailed
from jobs.builds.images.plan import Image
from jobs.builds.images.registry_client import AWAY_SECONDS, PATIENCE_SECONDS
from jobs.messages import cluster as messages
from runtime import contract
from runtime.messages import Template, from_json

# Retries for a registry that is unavailable for a while.
_PATIENCE = (f"--retry={PATIENCE_SECONDS / AWAY_SECONDS:.0f}", f"--retry-delay={AWAY_SECONDS:g}s")
_PLACE = "/tmp/regatta-build"  # noqa: S108  a mount point in the image
_LAST_LINES = 5
_DRIVERS = ("overlay", "vfs")  # the second works everywhere, and copies


class Buildah:
    """Builds images; all output goes to ``log``. Raises BuildFailed if the machine cannot build."""

    def __init__(self, order: Order, deadline: float, log: IO[str]) -> None:
        self._order, self._deadline, self._log = order, deadline, log
        if shutil.which("buildah") is None:
            raise BuildFailed(messages.BUILDAH_NOT_INSTALLED())
        storage = Path(order.storage)
        self._at = ("buildah", "--root", str(storage / "root"), "--runroot", str(storage / "run"))
        self._driver = self._find_driver()

    def make(self, image: Image, folder: Path) -> None:
        """Build an image from its parent and push it. ``folder``: the directory of the build."""
        name = image.reference.rpartition(":")[2]
        moved = build_request.pip_mounts(self._order.pip, f"{_PLACE}/shelves")
        context = self._create_context(image, folder / f"context-{name}", moved)
        try:
            self._quietly("rm", name)
            self._do(messages.BASE_IMAGE_NOT_PULLED, "from", "--name", name, *_PATIENCE, *self._access(), image.parent)
            mounts = [f"--volume={context}:{_PLACE}:ro"]
            mounts += [f"--volume={here}:{place}:ro" for place, here in moved.mounts.items()]
            command = ("python3", "-I", f"{_PLACE}/build_step.py", _PLACE)
            what = messages.REQUIREMENTS_NOT_INSTALLED
            self._do(what, "run", "--isolation=chroot", "--user=0", *mounts, name, "--", *command)
            self._do(messages.IMAGE_NOT_CONFIGURED, "config", f"--user={plan.USER}:{plan.GROUP}", name)
            self._do(messages.IMAGE_NOT_STORED, "commit", "--quiet", "--rm", name, image.reference)
            self._do(messages.IMAGE_NOT_PUSHED, "push", *_PATIENCE, *self._access(), image.reference)
            if image.kind is plan.Kind.ENVIRONMENT:
                self._quietly("rmi", image.reference)  # large, and the registry has it
        finally:
            self._quietly("rm", name)
            shutil.rmtree(context, ignore_errors=True)

    def _create_context(self, image: Image, context: Path, moved: build_request.PipMounts) -> Path:
        """Create the build context that is mounted: the program, pip, and mount points of local paths."""
        shutil.rmtree(context, ignore_errors=True)
        tool = context / "tool"
        tool.mkdir(parents=True)
        copy_tools(tool)
        if runtime_wheels.FOLDER.is_dir():
            shutil.copytree(runtime_wheels.FOLDER, tool / "wheels")
        shutil.copyfile(build_step.__file__, context / "build_step.py")
        for place, here in moved.mounts.items():
            mountpoint = context / Path(place).relative_to(_PLACE)
            mountpoint.parent.mkdir(exist_ok=True)
            mountpoint.mkdir() if Path(here).is_dir() else mountpoint.touch()
        step = build_request.step(self._order, image, moved.pip, self._left(), str(plan.PLATFORM))
        (context / "step.json").write_text(json.dumps(step), encoding="utf-8")
        return context

    def _find_driver(self) -> str:
        for driver in _DRIVERS:
            command = (*self._at, "--storage-driver", driver, "info")
            done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
            if done.returncode == 0:
                return driver
        lines = done.stderr.strip().splitlines() or [messages.NO_REASON_GIVEN()]
        raise BuildFailed(messages.IMAGE_BUILDS_UNAVAILABLE(error=lines[-1]))

    def _access(self) -> Sequence[str]:
        credentials = [f"--authfile={self._order.credentials}"] if self._order.credentials else []
        return (*credentials, *(["--tls-verify=false"] if self._order.insecure else []))

    def _left(self) -> float:
        left = self._deadline - time.monotonic()
        if left <= 0:
            raise BuildFailed(too_long(self._order))
        return left

    def _do(self, what: Template, *arguments: str) -> None:
        self._log.flush()
        begin = Path(self._log.name).stat().st_size
        command = (*self._at, "--storage-driver", self._driver, *arguments)
        try:
            done = subprocess.run(
                command,
                stdin=subprocess.DEVNULL,
                stdout=self._log,
                stderr=self._log,
                timeout=self._left(),
                check=False,
            )
        except subprocess.TimeoutExpired:
            raise BuildFailed(too_long(self._order)) from None
        if done.returncode != 0:
            raise BuildFailed(failure_message(self._output_since(begin), what))

    def _output_since(self, begin: int) -> list[str]:
        with Path(self._log.name).open(encoding="utf-8", errors="replace") as output:
            output.seek(begin)
            return output.read().splitlines()

    def _quietly(self, *arguments: str) -> None:
        command = (*self._at, "--storage-driver", self._driver, *arguments)
        subprocess.run(command, capture_output=True, stdin=subprocess.DEVNULL, timeout=60, check=False)


def copy_tools(tool: Path) -> None:
    """Copy what ``build_step.py`` needs besides itself: pip, which the image may lack, and the runtime."""
    unwanted = shutil.ignore_patterns("__pycache__")
    shutil.copytree(Path(pip.__file__).parent, tool / "pip", ignore=unwanted)
    shutil.copytree(Path(contract.__file__).parent, tool / "runtime", ignore=unwanted)


def failure_message(lines: Sequence[str], what: Template) -> str:
    """Return the message of a failed build: that of ``build_step.py``, otherwise ``what`` with the last lines."""
    for line in reversed(lines):
        if line.startswith(build_step.MARK):
            return pip_output.explained(_reported(line.removeprefix(build_step.MARK)), lines)
    last = [line.strip() for line in lines if line.strip()][-_LAST_LINES:]
    return what(error=" / ".join(last) or messages.NO_REASON_GIVEN())


def _reported(document: str) -> str:
    """Return the message that a program of the build printed. The user's packages can print anything in its place."""
    try:
        return from_json(json.loads(document))
    except ValueError:
        return document


def too_long(order: Order) -> str:
    return messages.IMAGE_BUILD_TIMED_OUT(count=f"{order.seconds:g}")
