"""Tries to leave its cgroup, where neither limits nor the end of its job reach it.

It uses inherited descriptors, files of the cgroup file system, and a new mount of it, and locates itself in the
machine's tree.
"""

import ctypes
import glob
import os

reached = []
for number in os.listdir("/proc/self/fd"):
    try:
        if os.readlink(f"/proc/self/fd/{number}").endswith("cgroup.procs"):
            reached.append(f"inherited {number}")
    except OSError:
        pass
libc = ctypes.CDLL(None, use_errno=True)
os.makedirs(os.environ["TMPDIR"] + "/tree", exist_ok=True)
if (
    libc.unshare(0x10020000) == 0
    and libc.mount(b"c", os.fsencode(os.environ["TMPDIR"] + "/tree"), b"cgroup2", 0, b"") == 0
):
    reached.append("mounted")
group = os.environ["GROUP"]
places = [group, *(root + group for root in ("/proc/1/root", "/proc/self/root", f"/proc/{os.getppid()}/root"))]
places += glob.glob("/sys/fs/cgroup/unified") + glob.glob("/sys/fs/cgroup")
for place in places:
    try:
        with open(place + "/cgroup.procs", "w") as file:
            file.write("0")
        reached.append(place)
        break
    except OSError:
        pass
own = [line.strip() for line in open("/proc/self/cgroup") if line.startswith("0::")]
if own != ["0::/"]:
    reached.append(f"sees {own}")
print(f"REACHED {', '.join(reached)}" if reached else "HELD", flush=True)
