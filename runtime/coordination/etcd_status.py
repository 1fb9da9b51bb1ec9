"""Status of the members of etcd: version, size and alarms. For operators; jobs do not use it."""

from __future__ import annotations

import contextlib
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from operator import attrgetter

from pyetcd import etcdrpc

from runtime.coordination.base import CoordinationError
from runtime.coordination.etcd_address import EtcdAddress
from runtime.coordination.etcd_connection import Connection, Method

STATUS: Method = attrgetter("maintenance.Status")
ALARM: Method = attrgetter("maintenance.Alarm")


@dataclass(frozen=True)
class MemberStatus:
    version: str
    size: int  # of its database, in bytes


@dataclass(frozen=True)
class ClusterStatus:
    """Answers of the ``members`` of an address. ``error``: class of the last error; it holds no address."""

    members: int
    answers: tuple[MemberStatus, ...]
    alarms: tuple[int, ...]
    error: str


def statuses(site: str, seconds: float) -> ClusterStatus:
    """Ask all members at once for their status and alarms. Each call takes at most ``seconds``."""
    address = EtcdAddress.parse(site)
    members = [replace(address, servers=(server,)) for server in address.servers]
    with ThreadPoolExecutor(len(members)) as threads:
        found = list(threads.map(partial(_ask, seconds=seconds), members))
    answers = [answer for answer in found if not isinstance(answer, CoordinationError)]
    errors = [type(answer).__name__ for answer in found if isinstance(answer, CoordinationError)]
    alarms = {alarm for _, raised in answers for alarm in raised}
    status = tuple(member for member, _ in answers)
    return ClusterStatus(len(members), status, tuple(sorted(alarms)), errors[-1] if errors else "")


def _ask(address: EtcdAddress, seconds: float) -> tuple[MemberStatus, frozenset[int]] | CoordinationError:
    try:
        with contextlib.closing(Connection(address, seconds)) as connection:
            status = connection.call(STATUS, etcdrpc.StatusRequest())
            listed = connection.call(ALARM, etcdrpc.AlarmRequest(action=etcdrpc.AlarmRequest.GET))
    except CoordinationError as failed:
        return failed
    return MemberStatus(str(status.version), int(status.dbSize)), frozenset(int(one.alarm) for one in listed.alarms)
