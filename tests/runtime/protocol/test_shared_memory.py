import errno
import json
import os
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from runtime.protocol import proof
from runtime.protocol.shared_memory import Handover, Segment, Visit

LAYOUT = [(5, "f4"), (3, "f8"), (0, "f4")]


@pytest.fixture
def segment():
    return Segment.create(LAYOUT)


def test_what_one_side_writes_the_other_reads(segment):
    other = Segment.open(segment.where, LAYOUT)
    for number, array in enumerate(segment.arrays):
        array[:] = number + 1
    assert [array.tolist() for array in other.arrays] == [[1.0] * 5, [2.0] * 3, []]


def test_a_segment_stays_mapped_after_its_descriptor_is_closed(segment):
    other = Segment.open(segment.where, LAYOUT)
    segment.close()
    segment.arrays[0][0] = 7
    assert other.arrays[0][0] == 7


@pytest.mark.parametrize("change", [{"process": 2**22}, {"descriptor": 10**6}, {"token": "00" * 16}])
def test_a_segment_out_of_reach_is_an_ordinary_error(segment, change):
    with pytest.raises((OSError, ValueError)):
        Segment.open({**segment.where, **change}, LAYOUT)


def test_memory_that_could_shrink_is_not_mapped(segment):
    size = os.fstat(segment.where["descriptor"]).st_size
    loose = os.memfd_create("loose")
    os.ftruncate(loose, size)
    with pytest.raises((OSError, ValueError)):
        Segment.open({**segment.where, "descriptor": loose}, LAYOUT)
    os.close(loose)


def test_a_segment_of_another_size_is_refused(segment):
    with pytest.raises(ValueError, match="size"):
        Segment.open(segment.where, LAYOUT[:1])


def test_nobody_else_can_write_to_a_private_segment():
    segment = Segment.create(LAYOUT, private=True)
    with pytest.raises(PermissionError):
        Segment.open(segment.where, LAYOUT)
    segment.arrays[0][0] = 7
    assert segment.arrays[0][0] == 7


def test_a_descriptor_that_was_handed_over_is_mapped_for_reading():
    handover, segment = Handover(), Segment.create(LAYOUT, private=True)
    segment.leave(Visit(handover.name))
    other = Segment.adopt(handover.collect(), LAYOUT)
    segment.arrays[1][2] = 5
    assert other.arrays[1].tolist() == [0, 0, 5]
    with pytest.raises(ValueError, match="read-only"):
        other.arrays[1][2] = 6


def test_a_descriptor_without_proof_is_not_collected():
    handover = Handover(b"secret")
    stranger, segment = Segment.create(LAYOUT, private=True), Segment.create(LAYOUT, private=True)
    stranger.leave(Visit(handover.name))
    stranger.leave(Visit(handover.name), b"another secret")
    segment.leave(Visit(handover.name), b"secret")
    other = Segment.adopt(handover.collect(), LAYOUT)
    assert other.where["token"] == segment.where["token"]
    with pytest.raises(BlockingIOError):
        handover.collect()


def test_a_proof_for_one_handover_is_none_for_another():
    first, second = Handover(b"secret"), Handover(b"secret")
    segment = Segment.create(LAYOUT, private=True)
    with socket.socket(socket.AF_UNIX) as link:
        link.connect(f"\0regatta-{second.name}")
        socket.send_fds(link, [proof.of_handover(b"secret", first.name)], [segment.descriptor])
    with pytest.raises(BlockingIOError):
        second.collect()


def test_a_connection_that_leaves_nothing_blocks_nobody():
    handover, segment = Handover(b"secret"), Segment.create(LAYOUT, private=True)
    silent = socket.socket(socket.AF_UNIX)
    silent.connect(f"\0regatta-{handover.name}")
    segment.leave(Visit(handover.name), b"secret")
    assert Segment.adopt(handover.collect(), LAYOUT).where["token"] == segment.where["token"]
    silent.close()


def test_where_nothing_was_left_nothing_is_collected():
    with pytest.raises(OSError):
        Handover().collect()


def test_visiting_a_process_without_a_handover_fails():
    handover = Handover()
    handover.close()
    with pytest.raises(OSError):
        Visit(handover.name)


def test_a_segment_for_which_there_is_no_memory_is_refused_before_it_is_used(monkeypatch):
    reserved = []

    def has_no_pages_left(descriptor, offset, size):
        reserved.append(descriptor)
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "posix_fallocate", has_no_pages_left)
    with pytest.raises(OSError, match="No space left"):
        Segment.create(LAYOUT)
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(reserved[0])


_CONFINED = """
import json
from runtime.isolation import syscalls
from runtime.protocol.shared_memory import Handover, Segment
if version := syscalls.landlock_version():
    syscalls.prctl(syscalls.PR_SET_NO_NEW_PRIVS, 1)
    syscalls.landlock_restrict(syscalls.landlock_ruleset(1 << 2, 0b11 if version >= 6 else 0))
layout = [(5, "f4")]
segment, handover = Segment.create(layout), Handover()
print(json.dumps([segment.where, handover.name]), flush=True)
input()
print(Segment.adopt(handover.collect(), layout).arrays[0].tolist(), segment.arrays[0].tolist())
"""


@pytest.mark.processes
def test_a_visit_takes_the_process_number_from_the_kernel():
    command = [sys.executable, "-c", _HOLDER]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        name = process.stdout.readline().strip()
        assert Visit(name).process == process.pid
        process.kill()


@pytest.mark.processes
def test_memory_is_shared_with_a_confined_process_in_both_directions():
    layout = [(5, "f4")]
    command = [sys.executable, "-c", _CONFINED]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        where, name = json.loads(process.stdout.readline())
        visit = Visit(name)
        Segment.open({**where, "process": visit.process}, layout).arrays[0][:] = 3
        mine = Segment.create(layout, private=True)
        mine.arrays[0][:] = 4
        mine.leave(visit)
        output, _ = process.communicate("go\n", timeout=60)
    assert output.strip() == "[4.0, 4.0, 4.0, 4.0, 4.0] [3.0, 3.0, 3.0, 3.0, 3.0]"


_HOLDER = """
import sys, time
from runtime.protocol.shared_memory import Handover, Segment
segment, handover = Segment.create([(1000, "f4")]), Handover()
print(handover.name, flush=True)
time.sleep(60)
"""


@pytest.mark.invariant("A killed process leaves no shared memory behind.")
@pytest.mark.processes
def test_a_killed_process_leaves_nothing_behind():
    shared_memory = Path("/dev/shm")
    before = set(shared_memory.iterdir())
    with subprocess.Popen([sys.executable, "-c", _HOLDER], stdout=subprocess.PIPE, text=True) as process:
        name = process.stdout.readline().strip()
        assert name in Path("/proc/net/unix").read_text()
        process.send_signal(signal.SIGKILL)
    assert name not in Path("/proc/net/unix").read_text()
    assert set(shared_memory.iterdir()) <= before
