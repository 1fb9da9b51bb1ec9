"""Hosts on one machine: network namespaces on a bridge, behind links whose rate and delay the kernel shapes.

The bridge is in its own namespace, so nothing of the host's network is visible, changed or shared, and the addresses
exist only inside. ``tbf`` limits the rate at both ends of a link, which is full duplex; ``netem`` delays what a host
sends, if the kernel has it. Needs root and iproute2.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass

from bench.environment.servers import Absent, program
from bench.runtime.step_groups import Place

_INTERFACE, _BRIDGE, _FIRST_HANDLE = "eth0", "bridge0", "1:"
# Burst size of a link, and its queue: as large as a switch has for a port.
_BURST, _WAITING = "256kb", "2mb"


@dataclass(frozen=True)
class Star:
    """Hosts on a bridge. ``delayed``: whether their packets are delayed; not all kernels support it."""

    places: Sequence[Place]
    delayed: bool


@contextmanager
def star(hosts: int, rate: str, delay: str) -> Iterator[Star]:
    """Create ``hosts`` namespaces, with ``rate`` and ``delay`` in the notation of ``tc``. Raises Absent with what is
    missing."""
    if os.geteuid() != 0:
        raise Absent("network namespaces need root")
    ip, tc = program("ip"), program("tc")
    name = f"regatta-bench-{os.getpid()}"
    hub = f"{name}-hub"
    with ExitStack() as stack:
        _namespace(stack, ip, hub)
        _run(ip, "-n", hub, "link", "add", "name", _BRIDGE, "type", "bridge")
        _run(ip, "-n", hub, "link", "set", _BRIDGE, "up")
        delayed = True
        places = []
        for number in range(hosts):
            host, link, address = f"{name}-{number}", f"link{number}", f"10.99.{number // 200}.{1 + number % 200}"
            _namespace(stack, ip, host)
            _run(ip, "-n", hub, "link", "add", link, "type", "veth", "peer", "name", _INTERFACE, "netns", host)
            _run(ip, "-n", hub, "link", "set", link, "master", _BRIDGE, "up")
            _run(ip, "-n", host, "addr", "add", f"{address}/16", "dev", _INTERFACE)
            for interface in (_INTERFACE, "lo"):
                _run(ip, "-n", host, "link", "set", interface, "up")
            for namespace, end in ((host, _INTERFACE), (hub, link)):
                shape = ("root", "handle", _FIRST_HANDLE, "tbf", "rate", rate, "burst", _BURST, "limit", _WAITING)
                _run(tc, "-n", namespace, "qdisc", "add", "dev", end, *shape)
            delayed &= _delay(tc, host, delay)
            places.append(Place(address, (ip, "netns", "exec", host), _INTERFACE))
        yield Star(places, delayed)


def _namespace(stack: ExitStack, ip: str, name: str) -> None:
    _run(ip, "netns", "add", name)
    stack.callback(_remove, ip, name)


def _remove(ip: str, name: str) -> None:
    """Delete a namespace with all links in it."""
    with suppress(Absent):
        _run(ip, "netns", "delete", name)


def _delay(tc: str, host: str, delay: str) -> bool:
    shape = ("parent", f"{_FIRST_HANDLE}1", "netem", "delay", delay, "limit", "10000")
    with suppress(Absent):
        _run(tc, "-n", host, "qdisc", "add", "dev", _INTERFACE, *shape)
        return True
    return False


def _run(*command: str) -> None:
    """Run a command. Raises Absent with its output if the kernel or the container lacks something."""
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        why = (done.stderr or done.stdout).strip().splitlines()
        raise Absent(f"{' '.join(command[1:])}: {why[0] if why else f'status {done.returncode}'}")
