"""A command in the sandbox of a replica, with its own standard streams. It ends with its connection."""

from __future__ import annotations

import os
import select
import threading
from collections.abc import Sequence

from runtime.agent.terminal.frames import Connection, await_room
from runtime.agent.terminal.guest import Guests
from runtime.isolation.join import Joined

# First byte of a frame of output.
STDOUT, STDERR = 1, 2
_READ_BYTES = 64 * 1024
_POLL_SECONDS = 1.0


class Command:
    """A running command, whose output goes to the connection while that accepts it."""

    def __init__(self, guests: Guests, arguments: Sequence[str], connection: Connection) -> None:
        self._guests, self._arguments, self._connection = guests, arguments, connection
        self._sending = threading.Lock()
        self._input_lock = threading.Lock()
        self._ending = threading.Lock()
        self._ended = self._left = False

    def start(self) -> None:
        """Start the command in the calling thread, which then calls ``relay`` and ``finish``. Raises NotLaunched."""
        pipes = [os.pipe2(os.O_CLOEXEC) for _ in range(3)]
        (stdin, self._input), (out, stdout), (err, stderr) = pipes
        try:
            self._joined: Joined = self._guests.start(self._arguments, (stdin, stdout, stderr))
        except BaseException:
            for descriptor in (self._input, out, err):
                os.close(descriptor)
            raise
        finally:
            for descriptor in (stdin, stdout, stderr):
                os.close(descriptor)
        self._outputs = (out, STDOUT), (err, STDERR)
        os.set_blocking(self._input, False)

    def relay(self) -> None:
        """Begin to send the output."""
        self._readers = [
            threading.Thread(target=self._forward, args=(descriptor, stream), daemon=True)
            for descriptor, stream in self._outputs
        ]
        for reader in self._readers:
            reader.start()

    def write(self, data: bytes) -> None:
        """Send input. Waits while the command does not read; input after its end is dropped.

        Raises ConnectionError if the connection ends.
        """
        with self._input_lock:
            view = memoryview(data)
            while view and self._input >= 0:
                try:
                    view = view[os.write(self._input, view) :]
                except BlockingIOError:
                    await_room(self._input, self._connection, _POLL_SECONDS)
                except OSError:
                    return

    def end_input(self) -> None:
        with self._input_lock:
            if self._input >= 0:
                os.close(self._input)
                self._input = -1

    def terminate(self) -> None:
        """Kill the command. Does nothing after its end, when its descriptor may be that of another command."""
        with self._ending:
            if not self._ended:
                self._joined.terminate()

    def leave(self) -> None:
        """Kill the command, and do not wait for the output of processes that it has left behind."""
        self._left = True
        self.terminate()

    def finish(self) -> int:
        """Wait for the end of the command and of its output. Return its exit code."""
        code = self._joined.exit_code()
        for reader in self._readers:
            reader.join()
        self.end_input()
        with self._ending:
            self._ended = True
            self._guests.end(self._joined)
        return code

    def _forward(self, descriptor: int, stream: int) -> None:
        poll = select.poll()
        poll.register(descriptor, select.POLLIN)
        try:
            while not self._left:
                if not poll.poll(_POLL_SECONDS * 1000):
                    continue
                if not (data := os.read(descriptor, _READ_BYTES)):
                    break
                with self._sending:
                    self._connection.send(bytes((stream,)) + data)
        except OSError:
            self.terminate()  # the connection is gone
        finally:
            os.close(descriptor)
