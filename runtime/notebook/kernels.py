"""Kernels with a recorder each, over Unix sockets."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from ipykernel.kernelspec import KERNEL_NAME
from jupyter_client.kernelspec import KernelSpec, KernelSpecManager
from jupyter_server.services.kernels.kernelmanager import AsyncMappingKernelManager, ServerKernelManager

from runtime.notebook import kernel_messages
from runtime.notebook.recorder import KernelRecorder

_LAUNCHER = Path(__file__).with_name("kernel_launcher.py")


class NotebookKernelSpecs(KernelSpecManager):
    """The Python of this environment, and kernels that a person has installed in the home directory."""

    def get_kernel_spec(self, kernel_name: str) -> KernelSpec:
        """Return how a kernel is started."""
        spec: KernelSpec = super().get_kernel_spec(kernel_name)
        if kernel_name == KERNEL_NAME:
            spec.argv = [sys.executable, str(_LAUNCHER), "-f", "{connection_file}"]
            spec.display_name = "Python 3"
        return spec


class NotebookKernel(ServerKernelManager):
    """One kernel. Its sockets have files in the runtime directory, and no port."""

    def _create_connected_socket(self, channel: str, identity: bytes | None = None) -> Any:
        # Beyond its limit ZeroMQ drops what a busy event loop has not read yet.
        self.context.rcvhwm = 0
        return super()._create_connected_socket(channel, identity)


class NotebookKernels(AsyncMappingKernelManager):
    """All kernels. Each has a recorder from its start to its end."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        # Set by the application before the first kernel starts.
        self.new_recorder: Callable[[], KernelRecorder]
        self.recorders: dict[str, KernelRecorder] = {}

    def start_watching_activity(self, kernel_id: str) -> None:
        """Follow what the kernel publishes: its state, and the outputs for the record."""
        kernel = self._kernels[kernel_id]
        kernel.reason = ""
        kernel.last_activity = datetime.now(UTC)
        recorder = self.recorders.get(kernel_id)
        if recorder is None:
            recorder = self.recorders[kernel_id] = self.new_recorder()
            self.add_restart_callback(kernel_id, recorder.end_all)
            self.add_restart_callback(kernel_id, recorder.end_all, "dead")
        kernel._activity_stream = kernel.connect_iopub()

        def receive(frames: Sequence[bytes]) -> None:
            message = kernel_messages.parse(frames)
            self._note_activity(kernel, message)
            recorder.receive(message)

        kernel._activity_stream.on_recv(receive)

    def _note_activity(self, kernel: Any, message: kernel_messages.Received) -> None:
        about = message.parent.get("msg_type", "")
        tracked = self.track_message_type(about)
        if tracked or kernel.execution_state == "busy":
            self.last_kernel_activity = kernel.last_activity = datetime.now(UTC)
        if message.type == "status":
            state = message.content()["execution_state"]
            if tracked:
                kernel.execution_state = state
            elif kernel.execution_state == "starting" and state != "starting":
                kernel.execution_state = "idle"

    async def _async_shutdown_kernel(
        self, kernel_id: str, now: bool | None = False, restart: bool | None = False
    ) -> None:
        """End a kernel, and with it its executions."""
        await super()._async_shutdown_kernel(kernel_id, now=now, restart=restart)
        self._end_executions(kernel_id)
        if not restart:
            self.recorders.pop(kernel_id, None)

    async def _async_restart_kernel(self, kernel_id: str, now: bool = False) -> Any:
        """Restart a kernel. Its executions have ended."""
        ready = await super()._async_restart_kernel(kernel_id, now=now)
        self._end_executions(kernel_id)
        return ready

    # As in the base class, which has each of them under two names.
    shutdown_kernel = _async_shutdown_kernel  # type: ignore[assignment]
    restart_kernel = _async_restart_kernel  # type: ignore[assignment]

    def _end_executions(self, kernel_id: str) -> None:
        if kernel_id in self.recorders:
            self.recorders[kernel_id].end_all()
