"""Reads and changes files of the portal and of the machine, by path and through every visible process."""

import os
import sys

secret = os.environ["SECRET"]
reached = []


def attempt(what, deed):
    try:
        deed()
        reached.append(what)
    except OSError:
        pass


isolated = os.getpid() == 2 and os.getppid() == 1
paths = [secret, *os.environ["CLOSED"].split(":")]
for number in os.listdir("/proc") if isolated else ():
    if number.isdigit() and int(number) != os.getpid():
        paths += [f"/proc/{number}/{name}" for name in (f"root{secret}", "cwd/../secret-key", "environ", "maps", "mem")]
        paths += [f"/proc/{number}/fd/{descriptor}/{secret}" for descriptor in range(100)]
for path in paths:
    attempt(f"open {path}", lambda path=path: open(path, "rb").read(1))
    attempt(f"stat {path}", lambda path=path: os.stat(path)) if "/proc" not in path else None
directory = os.path.dirname(secret)
attempt("chmod", lambda: os.chmod(secret, 0o644))
attempt("chmod of the directory", lambda: os.chmod(directory, 0o755))
attempt("utime", lambda: os.utime(directory, (0, 0)))
attempt("setxattr", lambda: os.setxattr(secret, "user.x", b"1"))
attempt("rename", lambda: os.rename(secret, secret + ".x"))
attempt("write", lambda: open(directory + "/new", "w"))
if isolated:
    # In the control run only the files of the test are changed.
    attempt("write to Python", lambda: open(os.__file__, "a"))
    attempt("write to the root", lambda: open("/new", "w"))
    attempt("device", lambda: os.mknod("/tmp/disk", 0o60600, os.makedev(254, 0)))
    for where in ("/run", "/root/.ssh", "/home", "/sys/fs/cgroup", "/var/lib", "/boot", "/dev/vda", "/dev/kmsg"):
        attempt(f"list {where}", lambda where=where: os.listdir(where) if os.path.isdir(where) else open(where, "rb"))
print("REACHED", *reached, sep="\n  ") if reached else print("HELD")
sys.stdout.flush()
