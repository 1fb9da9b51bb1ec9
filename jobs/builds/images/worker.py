"""Program that builds the missing images of a job: ``python -m jobs.builds.images.worker <folder> <lock>``.

The folder contains ``order.json`` and ``code/``. Output goes to ``build.log``, the result to ``outcome.json``:
``{"ok": bool, "why": "..."}``. ``lock`` is the inherited descriptor of the folder's ``lock`` file, which contains the
process id and is held until this process ends: if the lock is free and there is no outcome, no build runs. If several
workers need the same image at once, one builds it and the others wait. If the file ``given-up`` appears in the folder,
the worker ends, with its child processes and its pods.
"""

from __future__ import annotations

import fcntl
import json
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import IO, Protocol

from jobs.builds.images import layers, plan
from jobs.builds.images.build_request import BUILDAH, GIVEN_UP, LOG, OUTCOME, POD, Order
from jobs.builds.images.buildah import Buildah, too_long
from jobs.builds.images.errors import BuildFailed
from jobs.builds.images.plan import Image
from jobs.builds.images.registry_client import PATIENCE_SECONDS, Credentials, Registry, RegistryError, wait_for_registry
from jobs.messages import cluster as messages
from runtime.messages import to_json

_WAIT_SECONDS = 0.2
_WATCH_SECONDS = 0.5


class Builder(Protocol):
    """Builder of images that run a program in their parent."""

    def make(self, image: Image, folder: Path) -> None:
        """Build and push an image. ``folder``: the build's directory. Raises BuildFailed, RegistryError."""


def _pods(order: Order, deadline: float, log: IO[str]) -> Builder:
    # Imported here: the client of Kubernetes takes a second to import.
    from jobs.builds.images.pod_builder import Pods

    return Pods(order, deadline, log)


_BUILDERS: Mapping[str, Callable[[Order, float, IO[str]], Builder]] = {BUILDAH: Buildah, POD: _pods}


def main(folder: Path, lock: int) -> int:
    signal.signal(signal.SIGTERM, _exit)
    threading.Thread(target=_watch, args=(folder,), daemon=True).start()
    os.set_inheritable(lock, False)
    os.ftruncate(lock, 0)
    os.pwrite(lock, str(os.getpid()).encode(), 0)
    with (folder / LOG).open("a", encoding="utf-8") as log:
        _write_outcome(folder, _run(folder, log))
    return 0


def _exit(*_: object) -> None:
    """Exit, so that context managers and finally blocks clean up. A second signal does not interrupt them."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    sys.exit(143)


def _watch(folder: Path) -> None:
    """Send SIGTERM to this process and its children as soon as the build is given up."""
    while not (folder / GIVEN_UP).exists():
        time.sleep(_WATCH_SECONDS)
    os.killpg(os.getpgrp(), signal.SIGTERM)  # the worker leads a session, and so a process group


def _run(folder: Path, log: IO[str]) -> str:
    """Run the order. Return a message; empty if it succeeded."""
    try:
        Work(Order.read(folder), folder, log).make_all()
    except BuildFailed as failed:
        return failed.why
    except (RegistryError, OSError, ValueError) as error:
        return messages.IMAGE_NOT_BUILT(error=error)
    return ""


class Work:
    """Execution of one order."""

    def __init__(self, order: Order, folder: Path, log: IO[str]) -> None:
        self._order, self._folder, self._log = order, folder, log
        self._deadline = time.monotonic() + order.seconds
        self._registry = self._registry_of(order.registry)

    def make_all(self) -> None:
        for image in self._missing():
            with self._exclusive(image):
                if not self._is_there(image):
                    self._make(image)

    def _missing(self) -> list[Image]:
        """Return the missing images, base first. Parents of an image that exists are not checked."""
        found = []
        for image in reversed(self._order.images):
            if self._is_there(image):
                break
            found.append(image)
        return found[::-1]

    def _make(self, image: Image) -> None:
        begun = time.monotonic()
        self._write_log(f"Making {image.reference}")
        if image.runs:
            _BUILDERS[self._order.builder](self._order, self._deadline, self._log).make(image, self._folder)
        else:
            self._add_code(image)
        self._write_log(f"Made {image.reference} in {time.monotonic() - begun:.1f} s")

    def _add_code(self, image: Image) -> None:
        put = partial(
            layers.append,
            self._registry_of(plan.parts(image.parent)[0]),
            image.parent,
            self._registry,
            image.reference,
            {image.folder: self._folder / "code"},
            by="regatta: code",
            settings={"User": f"{plan.USER}:{plan.GROUP}", "WorkingDir": image.folder},
        )
        wait_for_registry(put, min(PATIENCE_SECONDS, self._left()), self._write_log)

    def _is_there(self, image: Image) -> bool:
        """Return whether the image exists; wait while the registry is unavailable."""
        _, repository, tag = plan.parts(image.reference)
        return wait_for_registry(partial(self._registry.has_manifest, repository, tag), self._left(), self._write_log)

    def _left(self) -> float:
        return self._deadline - time.monotonic()

    def _registry_of(self, host: str) -> Registry:
        file = Path(self._order.credentials) if self._order.credentials else None
        insecure = self._order.insecure and host == self._order.registry
        return Registry(host, insecure=insecure, credentials=Credentials.read(file, host))

    @contextmanager
    def _exclusive(self, image: Image) -> Iterator[None]:
        """Hold this machine's lock of the image; wait for it until the deadline."""
        locks = Path(self._order.storage) / "locks"
        locks.mkdir(parents=True, exist_ok=True)
        with (locks / plan.parts(image.reference)[2]).open("a") as lock:
            reported = False
            while not _taken(lock):
                if not reported:
                    self._write_log(f"Waiting for {image.reference}, which another job has made now")
                    reported = True
                if time.monotonic() > self._deadline:
                    raise BuildFailed(too_long(self._order))
                time.sleep(_WAIT_SECONDS)
            yield

    def _write_log(self, line: str) -> None:
        self._log.write(line + "\n")
        self._log.flush()


def _taken(lock: IO[str]) -> bool:
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _write_outcome(folder: Path, problem: str) -> None:
    fresh = folder / f"{OUTCOME}.part"
    fresh.write_text(json.dumps({"ok": not problem, "why": to_json(problem)}), encoding="utf-8")
    fresh.replace(folder / OUTCOME)


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), int(sys.argv[2])))
