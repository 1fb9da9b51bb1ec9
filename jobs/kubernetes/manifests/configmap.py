"""The ConfigMap that tells every pod where all the others are; pods wait until it is there."""

from __future__ import annotations

import ipaddress
import json
from collections.abc import Mapping
from typing import Any

from jobs.kubernetes import names
from jobs.kubernetes.manifests.owner import owned
from jobs.kubernetes.spec import Intranet, PaddleJob


def config_map(
    job: PaddleJob, addresses: Mapping[str, str], uids: Mapping[str, str], port: int, attempt: int
) -> dict[str, Any]:
    """``addresses`` and ``uids`` are by pod name; ``port`` is the first of each pod's block."""
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": owned(
            job,
            job.name,
            {names.RESOURCE_NAME_LABEL: job.name, names.ATTEMPT_LABEL: str(attempt)},
            {names.MEMBERS_ANNOTATION: json.dumps(members(job, addresses, uids), sort_keys=True)},
        ),
        "data": data(job, addresses, port),
    }


def members(job: PaddleJob, addresses: Mapping[str, str], uids: Mapping[str, str]) -> dict[str, str]:
    """Whom a ConfigMap speaks of: names, and where another pod of the name would be somebody else, UID and address."""
    return {
        name: "" if job.keeps_names else f"{uids.get(name, '')} {addresses[name]}" for name, _, _ in job.pod_names()
    }


def data(job: PaddleJob, addresses: Mapping[str, str], port: int) -> dict[str, str]:
    """The variables of the contract of paddle-operator 0.3.5."""
    hosts = {role: _hosts(job, role, addresses) for role in job.roles}
    lists = {role: ",".join(f"{host}:{port}" for host in found) for role, found in hosts.items()}
    told = {"TRAINER_PORTS_NUM": str(names.PORTS), "PADDLE_PORT": str(port)}
    if names.MASTER in hosts:
        told["PADDLE_MASTER_ENDPOINTS"] = lists[names.MASTER]
    if names.PS in hosts:
        told["PADDLE_PSERVERS_IP_PORT_LIST"] = lists[names.PS]
    if names.WORKER in hosts:
        told["PADDLE_TRAINER_ENDPOINTS"] = lists[names.WORKER]
        told["PADDLE_TRAINERS"] = ",".join(hosts[names.WORKER])
        told["PADDLE_TRAINERS_NUM"] = str(len(hosts[names.WORKER]))
    if names.HETER in hosts:
        told["PADDLE_HETER_ENDPOINTS"] = lists[names.HETER]
    if job.with_gloo > 0 and hosts.get(names.PS):
        told["PADDLE_WITH_GLOO"] = str(job.with_gloo)
        told["PADDLE_GLOO_RENDEZVOUS"] = "3"  # over HTTP
        told["PADDLE_GLOO_HTTP_ENDPOINT"] = f"{hosts[names.PS][0]}:{port + names.GLOO_OFFSET}"
    return told


def _hosts(job: PaddleJob, role: str, addresses: Mapping[str, str]) -> list[str]:
    wanted = [names.pod_name(job.name, role, index) for index in range(job.roles[role].replicas)]
    return [name if job.intranet is Intranet.SERVICE else _host(addresses[name]) for name in wanted]


def _host(address: str) -> str:
    """An address as it stands before a colon and a port."""
    return f"[{address}]" if ipaddress.ip_address(address).version == 6 else address
