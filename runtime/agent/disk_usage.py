"""Disk usage of a replica's own directories, measured from outside and at its own pace."""

from __future__ import annotations

import os
import stat
import threading
import time
from collections.abc import Callable, Iterable

from runtime.errors import TEMPORARY

# Minimum pause between two measurements, in seconds and as a multiple of the last measurement's duration.
_PAUSE_SECONDS = 1.0
_SHARE_OF_TIME = 5
# How long a shortage of the machine may prevent a measurement.
_UNMEASURED_SECONDS = 5.0
# Every file takes an entry of the file system, however small it is.
LEAST_BYTES = 4096


class Disk:
    """Measurement on a thread of its own. ``used`` is the last result; ``problem`` is why there is none."""

    def __init__(self, directories: Iterable[str], clock: Callable[[], float] = time.monotonic) -> None:
        """Prepare the measurement. ``clock`` measures how long a shortage has lasted."""
        self._directories = tuple(directories)
        self._clock = clock
        self._over = threading.Event()
        self.used = 0
        self.problem = ""
        self._thread = threading.Thread(target=self._run, name="disk", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def close(self) -> None:
        self._over.set()

    def _run(self) -> None:
        pause = 0.0
        since: float | None = None  # when a shortage began
        while not self._over.wait(pause):
            began, pause = time.monotonic(), _PAUSE_SECONDS
            try:
                self.used = size(self._directories)
            except OSError as error:
                since = self._clock() if since is None else since
                if error.errno in TEMPORARY and self._clock() < since + _UNMEASURED_SECONDS:
                    continue
                self.problem = f"{error.filename}: {error.strerror}"
                return
            except Exception as error:  # noqa: BLE001  a limit that is not measured is not enforced
                self.problem = repr(error)
                return
            since = None
            pause = max(_PAUSE_SECONDS, _SHARE_OF_TIME * (time.monotonic() - began))


def size(directories: Iterable[str]) -> int:
    """Return the bytes on disk of everything below the directories.

    Links are not followed, and a file with several names counts once. Raises OSError; a file that is removed during the
    measurement is no error.
    """
    total, seen = 0, set()
    waiting = list(directories)
    while waiting:
        try:
            with os.scandir(waiting.pop()) as entries:
                for entry in entries:
                    try:
                        status = entry.stat(follow_symlinks=False)
                    except FileNotFoundError:
                        continue
                    if stat.S_ISDIR(status.st_mode):
                        waiting.append(entry.path)
                    elif status.st_nlink > 1:
                        if (status.st_dev, status.st_ino) in seen:
                            continue
                        seen.add((status.st_dev, status.st_ino))
                    total += max(LEAST_BYTES, status.st_blocks * 512)
        except (FileNotFoundError, NotADirectoryError):
            continue
    return total
