"""Hosts of R1n are separate and behind links of the given rate; R1c counts real CPU time and bytes."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator

import pytest

from bench.environment.servers import Absent
from bench.runtime import namespaces, processor_time
from bench.runtime.step_groups import Team

BYTES, BITS_A_SECOND = 4_000_000, 100_000_000
_RECEIVE = """
import socket, time
with socket.create_server(("{address}", 5000)) as listener:
    print("ready", flush=True)
    link = listener.accept()[0]
begun, count = time.perf_counter(), 0
while data := link.recv(1 << 20):
    count += len(data)
print(count, time.perf_counter() - begun)
"""
_SEND = """
import socket
with socket.create_connection(("{address}", 5000), timeout=20) as link:
    link.sendall(bytes({size}))
"""


@pytest.fixture
def star() -> Iterator[namespaces.Star]:
    try:
        with namespaces.star(2, "100mbit", "200us") as star:
            yield star
    except Absent as error:
        pytest.skip(str(error))


@pytest.mark.processes
def test_a_link_has_the_requested_rate(star: namespaces.Star) -> None:
    here, there = star.places
    command = [*here.enter, sys.executable, "-c", _RECEIVE.format(address=here.address)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as receiver:
        assert receiver.stdout is not None
        assert receiver.stdout.readline() == "ready\n"
        script = _SEND.format(address=here.address, size=BYTES)
        subprocess.run([*there.enter, sys.executable, "-c", script], check=True, timeout=60)
        count, seconds = map(float, receiver.stdout.readline().split())
    assert count == BYTES
    assert seconds >= 0.8 * 8 * BYTES / BITS_A_SECOND


def test_all_hosts_are_removed() -> None:
    if os.geteuid():
        pytest.skip("network namespaces need root")
    try:
        with namespaces.star(1, "1gbit", "200us"):
            assert f"regatta-bench-{os.getpid()}-0" in _namespaces()
    except Absent as error:
        pytest.skip(str(error))
    assert f"regatta-bench-{os.getpid()}-0" not in _namespaces()


def _namespaces() -> str:
    return subprocess.run(["ip", "netns", "list"], capture_output=True, text=True, check=True).stdout


@pytest.mark.processes
def test_cpu_time_includes_all_processes_of_a_team() -> None:
    busy = "import time\nwhile time.process_time() < 0.3: pass\nprint(flush=True)\ninput()"
    options = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    group = [subprocess.Popen([sys.executable, "-c", busy], **options) for _ in range(2)]  # type: ignore[call-overload]
    try:
        for process in group:
            process.stdout.readline()
        assert 0.5 <= Team([], group).cpu_seconds() <= 1.5, "of both, and nothing while they wait"
    finally:
        for process in group:
            process.communicate("\n")


def test_a_ring_of_two_moves_half_the_bytes_of_servers() -> None:
    assert processor_time.moved("gloo", 2) == processor_time.moved("ours", 2) / 2
    assert processor_time.moved("gloo", 4) == processor_time.moved("ours", 4) * 0.75
