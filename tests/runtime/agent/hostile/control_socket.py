"""Connects to the control socket of its own agent and of another one by their paths."""

import os
import socket
from pathlib import Path

own = Path(os.environ["REGATTA_WORK_DIR"]).parent
places = [own / "control.socket", Path("/proc/self/cwd/../control.socket"), own.parent / "trainer-1" / "control.socket"]
reached = []
for place in places:
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as link:
        try:
            link.connect(str(place))
            reached.append(str(place))
        except OSError:
            pass
print("REACHED", *reached, sep="\n  ") if reached else print("HELD")
