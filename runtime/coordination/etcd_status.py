"""Status of the members of etcd: version, size and alarms. For operators; jobs do not use it."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass, replace
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
    """Ask each member for its status, in at most ``seconds`` each, and one for the alarms of all."""
    address = EtcdAddress.parse(site)
    answers: list[MemberStatus] = []
    alarms: set[int] = set()
    error = ""
    for server in address.servers:
        with contextlib.closing(Connection(replace(address, servers=(server,)), seconds)) as connection:
            try:
                status = connection.call(STATUS, etcdrpc.StatusRequest())
                answers.append(MemberStatus(str(status.version), int(status.dbSize)))
                listed = connection.call(ALARM, etcdrpc.AlarmRequest(action=etcdrpc.AlarmRequest.GET))
                alarms |= {int(member.alarm) for member in listed.alarms}
            except CoordinationError as failed:
                error = type(failed).__name__
    return ClusterStatus(len(address.servers), tuple(answers), tuple(sorted(alarms)), error)
