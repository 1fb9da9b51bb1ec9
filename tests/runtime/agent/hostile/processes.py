"""Attacks limits, priorities, signals, memory and descriptors of other processes.

The targets are one victim and, within a PID namespace, all visible processes. It attacks no other process: without
isolation this program would change the machine that runs the tests.
"""

import contextlib
import ctypes
import os
import resource

libc = ctypes.CDLL(None, use_errno=True)
victim = int(os.environ["VICTIM"])
isolated = os.getpid() == 2 and os.getppid() == 1
visible = {int(name) for name in os.listdir("/proc") if name.isdigit()} if isolated else set()
others = {victim, *visible} - {os.getpid()}
reached = []


def attempt(what, deed):
    with contextlib.suppress(OSError, ValueError, ProcessLookupError):
        if deed() != -1:
            reached.append(what)


class Piece(ctypes.Structure):
    _fields_ = [("base", ctypes.c_void_p), ("size", ctypes.c_size_t)]


def read_memory(pid):
    here = ctypes.create_string_buffer(8)
    ours, theirs = Piece(ctypes.addressof(here), 8), Piece(os_module, 8)
    return libc.process_vm_readv(pid, ctypes.byref(ours), 1, ctypes.byref(theirs), 1, 0)


# The same interpreter is mapped in the victim, at an address that is found if its maps can be read.
os_module = 0
with contextlib.suppress(OSError):
    os_module = int(open(f"/proc/{victim}/maps").readline().split("-")[0], 16)
for pid in others:
    # Process 1 belongs to the job, and the job ends with it.
    inside = pid == 1 and isolated
    attempt(f"prlimit {pid}", lambda pid=pid: resource.prlimit(pid, resource.RLIMIT_CORE, (0, 0)) and None)
    attempt(f"prlimit look {pid}", lambda pid=pid: resource.prlimit(pid, resource.RLIMIT_NOFILE) and None)
    attempt(f"ptrace {pid}", lambda pid=pid: libc.ptrace(0x4206, pid, 0, 0))
    attempt(f"process_vm_readv {pid}", lambda pid=pid: read_memory(pid))
    attempt(f"kcmp {pid}", lambda pid=pid: libc.syscall(312, pid, pid, 0, 0, 0))
    attempt(f"pidfd_open {pid}", lambda pid=pid: os.pidfd_open(pid))
    attempt(f"move_pages {pid}", lambda pid=pid: libc.syscall(279, pid, 0, 0, 0, 0, 0))
    attempt(f"oom {pid}", lambda pid=pid: open(f"/proc/{pid}/oom_score_adj", "w").write("1"))
    if inside:
        continue
    attempt(f"kill {pid}", lambda pid=pid: os.kill(pid, 0))
    attempt(f"setpriority {pid}", lambda pid=pid: os.setpriority(os.PRIO_PROCESS, pid, 19))
    attempt(f"affinity {pid}", lambda pid=pid: os.sched_setaffinity(pid, os.sched_getaffinity(pid)))
    attempt(f"scheduler {pid}", lambda pid=pid: os.sched_setscheduler(pid, os.SCHED_IDLE, os.sched_param(0)))
if isolated:
    attempt("setpriority of the user", lambda: os.setpriority(os.PRIO_USER, os.getuid(), 19))
print("REACHED", *reached, sep="\n  ") if reached else print("HELD")
