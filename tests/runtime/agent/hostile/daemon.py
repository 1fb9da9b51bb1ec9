"""Leaves a process behind: out of the session, without the environment, ignoring signals, far from its parent."""

import os
import signal
import sys

if not os.fork():
    os.setsid()
    for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT):
        signal.signal(number, signal.SIG_IGN)
    if not os.fork():
        os.closerange(0, 64)
        os.execve(
            sys.executable, [sys.executable, "-I", "-S", "-c", "import time; time.sleep(300)", os.environ["NAME"]], {}
        )
    os._exit(0)
os.wait()
print("left", flush=True)
