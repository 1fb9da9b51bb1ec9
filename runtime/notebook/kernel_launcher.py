"""Run ipykernel without a limit on messages that wait to be sent: beyond 1,000, ZeroMQ drops them silently.

Run by its file name, so it imports nothing of ours; the directory of this file leaves the module path first.
"""

import sys
from typing import Any

if __name__ == "__main__":
    del sys.path[0]
    import zmq
    from ipykernel.kernelapp import IPKernelApp

    limited: Any = IPKernelApp.init_iopub

    def unlimited(self: IPKernelApp, context: zmq.Context) -> None:  # type: ignore[type-arg]
        context.sndhwm = 0
        limited(self, context)

    # No subclass: the names of settings follow from the name of the class.
    IPKernelApp.init_iopub = unlimited  # type: ignore[method-assign]
    # As ipykernel_launcher does: the directory of the notebook is on the module path.
    sys.path.insert(0, "")
    IPKernelApp.launch_instance()
