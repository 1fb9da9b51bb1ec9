"""Filter of system calls, as a program for the kernel's packet-filter machine. Pure.

It refuses calls that reach beyond the job's own processes or into rarely used parts of the kernel. Calls for which the
C library has a fallback are answered ENOSYS, all others EPERM. A call of another architecture (i386, x32) ends the
process. Within a PID namespace only the job's own processes have ids, so threads may be pinned and given priorities
there. ``alone=False`` refuses priorities for other processes, and still lets threads be pinned.
"""

from __future__ import annotations

import struct
from errno import EAFNOSUPPORT, ENOSYS, EPERM

from runtime.messages import isolation as messages

_ALLOW, _KILL, _ERRNO = 0x7FFF0000, 0x80000000, 0x00050000
_LOAD, _JEQ, _JGT, _JGE, _JSET, _RETURN = 0x20, 0x15, 0x25, 0x35, 0x45, 0x06
_NUMBER_AT, _ARCHITECTURE_AT, _ARGUMENTS_AT = 0, 4, 16
_X32 = 0x40000000

_ARCHITECTURES = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}
# Columns of the tables below.
_COLUMNS = {"x86_64": 0, "aarch64": 1}

# System calls that were added to the kernel after this one (of Linux 6.10) do not exist for a job.
_LAST = 462

# name: its number on x86_64 and on aarch64; None if the architecture does not have the call.
_REFUSED: dict[str, tuple[int | None, int | None]] = {
    # other processes
    "ptrace": (101, 117),
    "process_vm_readv": (310, 270),
    "process_vm_writev": (311, 271),
    "process_madvise": (440, 440),
    "process_mrelease": (448, 448),
    "kcmp": (312, 272),
    "migrate_pages": (256, 238),
    # mounts and namespaces
    "mount": (165, 40),
    "umount2": (166, 39),
    "pivot_root": (155, 41),
    "chroot": (161, 51),
    "open_tree": (428, 428),
    "move_mount": (429, 429),
    "fsopen": (430, 430),
    "fsconfig": (431, 431),
    "fsmount": (432, 432),
    "fspick": (433, 433),
    "mount_setattr": (442, 442),
    "statmount": (457, 457),
    "listmount": (458, 458),
    "unshare": (272, 97),
    "setns": (308, 268),
    "open_by_handle_at": (304, 265),
    # keys, programs in the kernel, measurement of other processes
    "add_key": (248, 217),
    "request_key": (249, 218),
    "keyctl": (250, 219),
    "bpf": (321, 280),
    "perf_event_open": (298, 241),
    "userfaultfd": (323, 282),
    "fanotify_init": (300, 262),
    "lookup_dcookie": (212, 18),
    # memory that no limit counts
    "shmget": (29, 194),
    "memfd_secret": (447, 447),
    # the machine
    "kexec_load": (246, 104),
    "kexec_file_load": (320, 294),
    "init_module": (175, 105),
    "finit_module": (313, 273),
    "delete_module": (176, 106),
    "reboot": (169, 142),
    "swapon": (167, 224),
    "swapoff": (168, 225),
    "acct": (163, 89),
    "quotactl": (179, 60),
    "quotactl_fd": (443, 443),
    "syslog": (103, 116),
    "settimeofday": (164, 170),
    "clock_settime": (227, 112),
    "sethostname": (170, 161),
    "setdomainname": (171, 162),
    "vhangup": (153, 58),
    "iopl": (172, None),
    "ioperm": (173, None),
    "modify_ldt": (154, None),
    "uselib": (134, None),
    "_sysctl": (156, None),
    "nfsservctl": (180, 42),
}
# Callers have a fallback if these are missing.
_MISSING: dict[str, tuple[int | None, int | None]] = {
    "clone3": (435, 435),
    "pidfd_open": (434, 434),
    "pidfd_send_signal": (424, 424),
    "pidfd_getfd": (438, 438),
    "io_uring_setup": (425, 425),
    "io_uring_enter": (426, 426),
    "io_uring_register": (427, 427),
}
_PRLIMIT, _CLONE, _PERSONALITY, _IOCTL = (302, 261), (56, 220), (135, 92), (16, 29)
_SOCKET, _SOCKETPAIR, _SETPRIORITY, _IOPRIO_SET = (41, 198), (53, 199), (141, 140), (251, 30)
_MOVE_PAGES = (279, 239)
_SCHEDULING = ((144, 119), (142, 118), (314, 274))  # sched_setscheduler, sched_setparam, sched_setattr

# New mount, cgroup, UTS, IPC, user, PID and network namespaces.
_NEW_NAMESPACES = 0x00020000 | 0x02000000 | 0x04000000 | 0x08000000 | 0x10000000 | 0x20000000 | 0x40000000
# Linux as usual, with its 32-bit name for uname, without randomised addresses, both; and the query.
_PERSONALITIES = (0, 0x8, 0x20000, 0x20008, 0x40000, 0x40008, 0xFFFFFFFF)
_TERMINAL_INPUT = (0x5412, 0x541C)  # TIOCSTI, TIOCLINUX
_FAMILIES = (1, 2, 10, 16)  # unix, IPv4, IPv6, netlink
_PRIO_USER, _IOPRIO_WHO_USER = 2, 3

Instruction = tuple[int, int, int, int]


class NoFilter(OSError):
    """There is no filter for this architecture."""


def program(machine: str, alone: bool) -> bytes:
    """Return the filter for an architecture as ``os.uname`` names it. Raises NoFilter.

    ``alone``: the process is in a PID namespace of its own.
    """
    if machine not in _ARCHITECTURES:
        raise NoFilter(messages.NO_SYSCALL_FILTER(machine=machine, known=", ".join(_ARCHITECTURES)))
    column = _COLUMNS[machine]
    code: list[Instruction] = [
        (_LOAD, 0, 0, _ARCHITECTURE_AT),
        (_JEQ, 1, 0, _ARCHITECTURES[machine]),
        _return(_KILL),
        (_LOAD, 0, 0, _NUMBER_AT),
    ]
    if machine == "x86_64":
        code += [(_JGE, 0, 1, _X32), _return(_KILL)]
    code += [(_JGT, 0, 1, _LAST), _return(_ERRNO | ENOSYS)]
    for table, error in ((_REFUSED, EPERM), (_MISSING, ENOSYS)):
        for numbers in table.values():
            if (number := numbers[column]) is not None:
                code += _when(number, [_return(_ERRNO | error)])
    for numbers, body in _conditional(alone):
        code += _when(numbers[column], body)
    code.append(_return(_ALLOW))
    return b"".join(struct.pack("=HBBI", *instruction) for instruction in code)


def _conditional(alone: bool) -> list[tuple[tuple[int, int], list[Instruction]]]:
    """Return the calls that are decided by their arguments, each with the instructions that decide."""
    nobody_else = _unless(0, (0,), EPERM)
    rules = [
        (_PRLIMIT, nobody_else),
        (_MOVE_PAGES, nobody_else),
        (_CLONE, [_argument(0), (_JSET, 0, 1, _NEW_NAMESPACES), _return(_ERRNO | EPERM), _return(_ALLOW)]),
        (_PERSONALITY, _unless(0, _PERSONALITIES, EPERM)),
        (_IOCTL, _if(1, _TERMINAL_INPUT, EPERM)),
        (_SOCKET, _unless(0, _FAMILIES, EAFNOSUPPORT)),
        (_SOCKETPAIR, _unless(0, _FAMILIES, EAFNOSUPPORT)),
    ]
    if alone:
        return [
            *rules,
            (_SETPRIORITY, _if(0, (_PRIO_USER,), EPERM)),
            (_IOPRIO_SET, _if(0, (_IOPRIO_WHO_USER,), EPERM)),
        ]
    # The first argument is a kind, the second an id. Only (process, this one) is allowed.
    itself = [_argument(1), (_JEQ, 1, 0, 0), _return(_ERRNO | EPERM)]
    return [
        *rules,
        *((numbers, nobody_else) for numbers in _SCHEDULING),
        (_SETPRIORITY, [*itself, *_unless(0, (0,), EPERM)]),
        (_IOPRIO_SET, [*itself, *_unless(0, (1,), EPERM)]),
    ]


def _when(number: int, body: list[Instruction]) -> list[Instruction]:
    return [(_JEQ, 0, len(body), number), *body]


def _if(position: int, values: tuple[int, ...], error: int) -> list[Instruction]:
    """Refuse if the argument is one of the values."""
    return [_argument(position), *_any(values), _return(_ALLOW), _return(_ERRNO | error)]


def _unless(position: int, values: tuple[int, ...], error: int) -> list[Instruction]:
    """Refuse if the argument is none of the values."""
    return [_argument(position), *_any(values), _return(_ERRNO | error), _return(_ALLOW)]


def _any(values: tuple[int, ...]) -> list[Instruction]:
    """Skip the next instruction if the argument is one of the values."""
    last = len(values) - 1
    return [(_JEQ, last - place + 1, 0, value) for place, value in enumerate(values)]


def _argument(position: int) -> Instruction:
    # The lower half: the kernel reads no more of the arguments that are checked here.
    return _LOAD, 0, 0, _ARGUMENTS_AT + 8 * position


def _return(action: int) -> Instruction:
    return _RETURN, 0, 0, action
