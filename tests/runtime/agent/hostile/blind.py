"""Limits the agent's descriptors, so that it cannot measure, and then uses too much memory."""

import contextlib
import os
import resource
import time

# An agent that is still starting would fail for another reason.
print("started", flush=True)
while "GO" in os.environ and not os.path.exists(os.environ["GO"]):
    time.sleep(0.01)
# Only its parent: without isolation that is the agent, and any other process would be one of the machine's.
with contextlib.suppress(OSError, ValueError):
    resource.prlimit(os.getppid(), resource.RLIMIT_NOFILE, (3, 3))
for _ in range(4):
    if not os.fork():
        break
hog = b"x" * (100 * 2**20)
time.sleep(20)
print("REACHED 500 MiB", flush=True)
