"""Calls into parts of the kernel that no training needs."""

import ctypes
import errno
import fcntl
import os
import socket

libc = ctypes.CDLL(None, use_errno=True)
REFUSED = (errno.EPERM, errno.ENOSYS, errno.EAFNOSUPPORT)
x86 = os.uname().machine == "x86_64"
reached = []


isolated = os.getpid() == 2 and os.getppid() == 1
# Without isolation, only calls that change nothing but this process.
HARMLESS = ("fsopen", "io_uring_setup", "personality", "unshare")


def call(what, *arguments):
    """Any answer but a refusal of the filter means that the kernel has handled the call."""
    if not isolated and what not in HARMLESS:
        return
    ctypes.set_errno(0)
    if libc.syscall(*arguments) != -1 or ctypes.get_errno() not in REFUSED:
        reached.append(f"{what} ({errno.errorcode.get(ctypes.get_errno())})")


NULL = None
call("ptrace", 101 if x86 else 117, 0, 0, 0, 0)
call("keyctl", 250 if x86 else 219, 0, -3, 1)
call("add_key", 248 if x86 else 217, b"user", b"x", b"y", 1, -3)
call("perf_event_open", 298 if x86 else 241, NULL, 0, -1, -1, 0)
call("userfaultfd", 323 if x86 else 282, 0x1)
call("bpf", 321 if x86 else 280, 5, NULL, 0)
call("unshare", 272 if x86 else 97, 0x10000000)
call("setns", 308 if x86 else 268, 0, 0)
call("mount", 165 if x86 else 40, NULL, NULL, NULL, 0, NULL)
call("umount", 166 if x86 else 39, b"/tmp", 2)
call("pivot_root", 155 if x86 else 41, b".", b".")
call("chroot", 161 if x86 else 51, b"/")
call("open_tree", 428, -100, b"/", 1)
call("fsopen", 430, b"tmpfs", 0)
call("mount_setattr", 442, -100, b"/", 0, NULL, 0)
call("open_by_handle_at", 304 if x86 else 265, -100, NULL, 0)
call("io_uring_setup", 425, 1, NULL)
call("pidfd_getfd", 438, 0, 0, 0)
call("process_madvise", 440, 0, NULL, 0, 0, 0)
call("clone3", 435, NULL, 0)
call("clone with a user namespace", 56 if x86 else 220, 0x10000000 | 17, 0, 0, 0, 0)
call("shmget", 29 if x86 else 194, 0, 4096, 0o1600)
call("kexec_load", 246 if x86 else 104, 0, 0, NULL, 0)
call("syslog", 103 if x86 else 116, 3, NULL, 0)
call("personality", 135 if x86 else 92, 0x0400000)
call("a call of tomorrow", 463, 0, 0)
for family in (17, 38, 40, 44) if isolated else ():  # packet, alg, vsock, xdp
    try:
        socket.socket(family, socket.SOCK_DGRAM).close()
        reached.append(f"socket family {family}")
    except OSError as error:
        if error.errno not in REFUSED:
            reached.append(f"socket family {family} ({error.strerror})")
try:
    isolated and fcntl.ioctl(0, 0x5412, b"x")
    isolated and reached.append("TIOCSTI")
except OSError as error:
    if error.errno != errno.EPERM:
        reached.append(f"TIOCSTI ({error.strerror})")
for deed in (lambda: os.setuid(0), lambda: os.setgid(0), lambda: os.setgroups([0])):
    try:
        if os.getuid() != 0:
            deed()
            reached.append("another identity")
    except OSError:
        pass
status = dict(line.split(":", 1) for line in open("/proc/self/status"))
for name, value in (("CapEff", "0" * 16), ("CapBnd", "0" * 16), ("NoNewPrivs", "1"), ("Seccomp", "2")):
    if status[name].strip() != value:
        reached.append(f"{name} {status[name].strip()}")
print("REACHED", *reached, sep="\n  ") if reached else print("HELD")
