"""Programs that are started in the sandbox of a replica, within its limits."""

from __future__ import annotations

import os
import threading
from collections.abc import Collection, Mapping, Sequence

from runtime import contract
from runtime.agent import child_process, short_tmpdir
from runtime.agent.child_process import Child
from runtime.agent.settings import Settings
from runtime.isolation import cgroup, gpu_devices, join, landlock, launch_request
from runtime.isolation.join import Guest, Joined
from runtime.isolation.launch import NotLaunched

__all__ = ["Guests", "NotLaunched"]

TERMINAL_TYPE = "xterm-256color"


class Guests:
    """Starts programs with the rights, the limits and the environment of the replica's own process.

    ``command``: the replica's, from which its readable files follow. Thread-safe.
    """

    def __init__(self, settings: Settings, command: Sequence[str], child: Child) -> None:
        self._settings, self._command = settings, command
        self._namespaces = child.namespaces
        self._lock = threading.Lock()
        self._running: dict[int, Joined] = {}
        self._closed = False

    def close(self) -> None:
        """Start nothing more, because the replica ends, and leave its namespaces."""
        with self._lock:
            self._closed, namespaces, self._namespaces = True, self._namespaces, ()
        for descriptor in namespaces:
            os.close(descriptor)

    def pids(self) -> Collection[int]:
        """Return the processes whose descendants are the running programs, for the limits of the replica."""
        with self._lock:
            return tuple(self._running)

    def start(self, arguments: Sequence[str], streams: tuple[int, int, int], *, terminal: bool = False) -> Joined:
        """Start a program; it ends with the calling thread and with the replica. Raises NotLaunched.

        The caller calls ``end`` once the program has ended.
        """
        settings = self._settings
        isolated = settings.sandbox == contract.NAMESPACES
        descriptors: list[int] = []
        try:
            with self._lock:
                if self._closed:
                    raise NotLaunched("the replica ends")
                # Copies, which stay open while the program starts.
                descriptors += map(os.dup, self._namespaces)
            namespaces = [*descriptors]
            entrance = ruleset = -1
            if settings.cgroup is not None:
                descriptors.append(entrance := cgroup.entrance(settings.cgroup))
            if settings.sandbox == contract.LANDLOCK:
                descriptors.append(ruleset := self._ruleset())
            joined = join.join(
                Guest(
                    arguments=arguments,
                    environment=self._environment(isolated, terminal),
                    directory=str(settings.work),
                    uid=settings.run_as if isolated else 0,
                    writable=child_process.writable(settings),
                    limits=child_process.possible_limits(settings),
                    gpus=gpu_devices.files(settings.gpus or ()),
                    cgroup=entrance,
                    network=settings.network.namespaces if settings.network else (-1, -1),
                    namespaces=namespaces,
                    ruleset=ruleset,
                    confined=settings.sandbox == contract.LANDLOCK,
                    terminal=terminal,
                ),
                streams,
            )
        except OSError as error:
            raise NotLaunched(str(error), error.errno) from None
        finally:
            for descriptor in descriptors:
                if descriptor >= 0:
                    os.close(descriptor)
        with self._lock:
            self._running[joined.pid] = joined
            ended = self._closed
        if ended:
            joined.terminate()
        return joined

    def end(self, joined: Joined) -> None:
        """Forget a program that has ended."""
        with self._lock:
            del self._running[joined.pid]
        joined.close()

    def _ruleset(self) -> int:
        try:
            return child_process.ruleset(self._settings, self._command)
        except landlock.LandlockMissing:
            return -1  # the replica's own process runs without rules too
        except child_process.NotStarted as error:
            raise NotLaunched(str(error)) from None

    def _environment(self, isolated: bool, terminal: bool) -> Mapping[str, str]:
        temporary = launch_request.TEMPORARY if isolated else str(short_tmpdir.make(self._settings.temporary))
        environment = child_process.environment(self._settings, temporary)
        if terminal:
            # Without a locale the shell would show every character beyond ASCII as a number.
            return {
                "LC_CTYPE": "C.UTF-8",
                **environment,
                "TERM": TERMINAL_TYPE,
                "PS1": rf"{self._settings.replica}:\w\$ ",
            }
        return environment
