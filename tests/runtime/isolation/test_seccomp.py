"""Filter of system calls, interpreted as the kernel does: its answer to each call."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from errno import EAFNOSUPPORT, ENOSYS, EPERM

import pytest

from runtime.isolation import seccomp

ALLOWED, KILLED = "allowed", "killed"
ARCHITECTURES = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}
I386, ARM = 0x40000003, 0x40000028
X32 = 0x40000000
# Numbers of the kernel's tables (x86_64, aarch64), repeated here: a wrong number in the filter fails a test.
COMMON = {"read": (0, 63), "write": (1, 64), "mmap": (9, 222), "execve": (59, 221), "futex": (202, 98)}
REFUSED = {
    "ptrace": (101, 117),
    "process_vm_readv": (310, 270),
    "process_vm_writev": (311, 271),
    "kcmp": (312, 272),
    "mount": (165, 40),
    "umount2": (166, 39),
    "pivot_root": (155, 41),
    "chroot": (161, 51),
    "unshare": (272, 97),
    "setns": (308, 268),
    "open_by_handle_at": (304, 265),
    "add_key": (248, 217),
    "request_key": (249, 218),
    "keyctl": (250, 219),
    "bpf": (321, 280),
    "perf_event_open": (298, 241),
    "userfaultfd": (323, 282),
    "shmget": (29, 194),
    "kexec_load": (246, 104),
    "init_module": (175, 105),
    "finit_module": (313, 273),
    "delete_module": (176, 106),
    "reboot": (169, 142),
    "swapon": (167, 224),
    "syslog": (103, 116),
    "settimeofday": (164, 170),
    "clock_settime": (227, 112),
    "sethostname": (170, 161),
    "open_tree": (428, 428),
    "move_mount": (429, 429),
    "fsopen": (430, 430),
    "process_madvise": (440, 440),
    "mount_setattr": (442, 442),
    "quotactl_fd": (443, 443),
    "memfd_secret": (447, 447),
    "process_mrelease": (448, 448),
}
MISSING = {
    "pidfd_send_signal": 424,
    "io_uring_setup": 425,
    "io_uring_enter": 426,
    "io_uring_register": 427,
    "pidfd_open": 434,
    "clone3": 435,
    "pidfd_getfd": 438,
    "the next call of the kernel": 463,
    "a call of the future": 600,
}
CLONE, PRLIMIT, SOCKET, SOCKETPAIR = (56, 220), (302, 261), (41, 198), (53, 199)
IOCTL, PERSONALITY, SETPRIORITY, SETSCHEDULER = (16, 29), (135, 92), (141, 140), (144, 119)


def answer(
    machine: str, number: int, arguments: Sequence[int] = (), *, alone: bool = True, architecture: int = 0
) -> str | int:
    """Return ALLOWED, KILLED, or the error number. Raises AssertionError for a program that the kernel would refuse."""
    code = list(struct.iter_unpack("=HBBI", seccomp.program(machine, alone)))
    words = [value & 0xFFFFFFFFFFFFFFFF for value in (*arguments, *[0] * (6 - len(arguments)))]
    data = struct.pack("=IIQ6Q", number, architecture or ARCHITECTURES[machine], 0, *words)
    accumulator, at = 0, 0
    while True:
        operation, when, otherwise, operand = code[at]
        at += 1
        match operation:
            case 0x20:  # load a word
                assert operand % 4 == 0
                (accumulator,) = struct.unpack_from("=I", data, operand)
            case 0x06:  # return
                return {0x7FFF0000: ALLOWED, 0x80000000: KILLED}.get(operand, operand & 0xFFFF)
            case _:
                holds = {
                    0x15: accumulator == operand,
                    0x25: accumulator > operand,
                    0x35: accumulator >= operand,
                    0x45: bool(accumulator & operand),
                }[operation]
                at += when if holds else otherwise


def column(machine: str) -> int:
    return list(ARCHITECTURES).index(machine)


machines = pytest.mark.parametrize("machine", ARCHITECTURES)
namespaces = pytest.mark.parametrize("alone", [True, False])


@machines
@namespaces
def test_ordinary_calls_are_allowed(machine: str, alone: bool) -> None:
    assert {name: answer(machine, numbers[column(machine)], alone=alone) for name, numbers in COMMON.items()} == (
        dict.fromkeys(COMMON, ALLOWED)
    )


@machines
@namespaces
def test_calls_that_reach_beyond_the_job_are_refused(machine: str, alone: bool) -> None:
    answers = {name: answer(machine, numbers[column(machine)], alone=alone) for name, numbers in REFUSED.items()}
    assert answers == dict.fromkeys(REFUSED, EPERM)


@machines
@namespaces
def test_calls_with_a_fallback_and_those_that_are_not_known_do_not_exist(machine: str, alone: bool) -> None:
    answers = {name: answer(machine, number, alone=alone) for name, number in MISSING.items()}
    assert answers == dict.fromkeys(MISSING, ENOSYS)
    assert answer(machine, 462) == ALLOWED


@machines
@pytest.mark.parametrize("architecture", [I386, ARM, 0xFFFFFFFF])
def test_a_call_of_another_architecture_ends_the_process(machine: str, architecture: int) -> None:
    assert answer(machine, COMMON["read"][column(machine)], architecture=architecture) == KILLED


@machines
def test_the_other_machine_is_another_architecture(machine: str) -> None:
    (other,) = set(ARCHITECTURES) - {machine}
    assert answer(machine, 63, architecture=ARCHITECTURES[other]) == KILLED


@pytest.mark.parametrize("number", [0, 1, 59, 101, 520, 547])
def test_a_call_of_x32_ends_the_process(number: int) -> None:
    assert answer("x86_64", X32 | number) == KILLED


def test_a_negative_number_never_passes() -> None:
    assert answer("x86_64", 0xFFFFFFFF) == KILLED
    assert answer("aarch64", 0xFFFFFFFF) == ENOSYS


@machines
@pytest.mark.parametrize("pid", [1, 77, -1])
def test_limits_of_others_are_refused_and_own_ones_allowed(machine: str, pid: int) -> None:
    assert answer(machine, PRLIMIT[column(machine)], [pid]) == EPERM
    assert answer(machine, PRLIMIT[column(machine)], [0]) == ALLOWED


@machines
@pytest.mark.parametrize("flag", [0x20000, 0x2000000, 0x4000000, 0x8000000, 0x10000000, 0x20000000, 0x40000000])
def test_no_process_begins_in_a_new_namespace(machine: str, flag: int) -> None:
    thread = 0x3D0F00
    assert answer(machine, CLONE[column(machine)], [thread | flag]) == EPERM
    assert answer(machine, CLONE[column(machine)], [thread]) == ALLOWED


@machines
@pytest.mark.parametrize("call", [SOCKET, SOCKETPAIR])
def test_only_usual_families_of_sockets_are_there(machine: str, call: tuple[int, int]) -> None:
    families = range(50)
    allowed = [family for family in families if answer(machine, call[column(machine)], [family]) == ALLOWED]
    assert allowed == [1, 2, 10, 16]
    assert {answer(machine, call[column(machine)], [family]) for family in families} == {ALLOWED, EAFNOSUPPORT}


@machines
def test_nothing_is_typed_into_a_terminal(machine: str) -> None:
    assert [answer(machine, IOCTL[column(machine)], [0, request]) for request in (0x5412, 0x541C, 0x5413)] == (
        [EPERM, EPERM, ALLOWED]
    )


@machines
def test_arguments_are_judged_by_the_half_that_the_kernel_reads(machine: str) -> None:
    assert answer(machine, IOCTL[column(machine)], [0, 1 << 32 | 0x5412]) == EPERM
    assert answer(machine, PRLIMIT[column(machine)], [1 << 32 | 5]) == EPERM


@machines
def test_personalities_that_change_the_memory_layout_of_others_are_refused(machine: str) -> None:
    answers = [answer(machine, PERSONALITY[column(machine)], [value]) for value in (0, 0xFFFFFFFF, 0x0400000)]
    assert answers == [ALLOWED, ALLOWED, EPERM]


@machines
def test_without_a_pid_namespace_priorities_of_others_are_refused(machine: str) -> None:
    of_another, of_itself = [0, 77, 5], [0, 0, 5]
    call = SETPRIORITY[column(machine)]
    assert [answer(machine, call, arguments, alone=False) for arguments in (of_another, of_itself)] == [EPERM, ALLOWED]
    assert answer(machine, SETSCHEDULER[column(machine)], [77], alone=False) == EPERM
    assert answer(machine, SETSCHEDULER[column(machine)], [0], alone=False) == ALLOWED


@machines
def test_within_a_pid_namespace_only_those_of_a_whole_user_are(machine: str) -> None:
    call = SETPRIORITY[column(machine)]
    assert [answer(machine, call, [kind, 77, 5]) for kind in (0, 1, 2)] == [ALLOWED, ALLOWED, EPERM]


@machines
def test_the_kernel_takes_a_program_of_this_length(machine: str) -> None:
    assert len(seccomp.program(machine, False)) // 8 <= 4096


def test_there_is_no_filter_for_other_machines() -> None:
    with pytest.raises(seccomp.NoFilter, match="riscv64"):
        seccomp.program("riscv64", True)
