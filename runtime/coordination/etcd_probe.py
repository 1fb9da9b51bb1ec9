"""Probe for an etcd that obeys callers without an account although it requires accounts (CVE-2026-33413)."""

from __future__ import annotations

import contextlib
from dataclasses import replace

from pyetcd import etcdrpc

from runtime.coordination.base import CoordinationError
from runtime.coordination.etcd_address import EtcdAddress
from runtime.coordination.etcd_connection import ALARM, STATUS, Connection

# The first versions without the known holes: alarms, leases and compaction without an account (CVE-2026-33413),
# nested transactions, lease attachment in transactions, and watches without an end (CVE-2026-73499).
PATCHED = "3.6.14 or newer (of 3.5: 3.5.33 or newer)"


def open_servers(site: str) -> dict[str, str]:
    """Return the servers of ``site`` that list their alarms to a caller without an account, with their versions.

    The probe changes nothing. A server that does not answer is left out. Call it while authentication is enabled.
    """
    address = EtcdAddress.parse(site).with_account("", "")
    found = {server: _version_if_open(replace(address, servers=(server,))) for server in address.servers}
    return {server: version for server, version in found.items() if version}


def _version_if_open(server: EtcdAddress) -> str:
    """Return the server's version, or an empty text if it refuses or does not answer."""
    with contextlib.closing(Connection(server)) as connection:
        try:
            connection.call(ALARM, etcdrpc.AlarmRequest(action=etcdrpc.AlarmRequest.GET))
        except CoordinationError:
            return ""
        try:
            return str(connection.call(STATUS, etcdrpc.StatusRequest()).version)
        except CoordinationError:
            return "unknown"
