"""The ConfigMap with the addresses of all pods of a job; pods wait until it exists."""

from __future__ import annotations

import ipaddress
import json
from collections.abc import Mapping
from typing import Any

from jobs.frameworks import paddle
from jobs.frameworks.paddle import Endpoint
from jobs.kubernetes_objects import pod_names
from jobs.operator.manifests.owner import owned
from jobs.operator.model import names
from jobs.operator.model.spec import Intranet, PaddleJob


def config_map(
    job: PaddleJob, addresses: Mapping[str, str], uids: Mapping[str, str], port: int, attempt: int
) -> dict[str, Any]:
    """Return the ConfigMap. ``addresses`` and ``uids`` are by pod name; ``port`` is the first of each pod's block."""
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
    """Return the pods listed in a ConfigMap by name, with UID and address unless the name alone identifies a pod."""
    return {
        name: "" if job.keeps_names else f"{uids.get(name, '')} {addresses[name]}" for name, _, _ in job.pod_names()
    }


def data(job: PaddleJob, addresses: Mapping[str, str], port: int) -> dict[str, str]:
    """Return the variables of the contract of paddle-operator 0.3.5."""
    places = {role: [Endpoint(host, port) for host in _hosts(job, role, addresses)] for role in job.roles}
    variables = paddle.shared_environment(places.get(names.PS), places.get(names.WORKER), job.with_gloo)
    for role, name in _LISTS.items():
        if role in places:
            variables[name] = paddle.listed(places[role])
    return {**variables, "PADDLE_PORT": str(port)}


# Variables of the operator's contract for roles other than servers and trainers.
_LISTS: Mapping[str, str] = {names.MASTER: "PADDLE_MASTER_ENDPOINTS", names.HETER: "PADDLE_HETER_ENDPOINTS"}


def _hosts(job: PaddleJob, role: str, addresses: Mapping[str, str]) -> list[str]:
    desired = [pod_names.pod_name(job.name, role, index) for index in range(job.roles[role].replicas)]
    return [name if job.intranet is Intranet.SERVICE else _host(addresses[name]) for name in desired]


def _host(address: str) -> str:
    """Format an address for use before a colon and a port."""
    return f"[{address}]" if ipaddress.ip_address(address).version == 6 else address
