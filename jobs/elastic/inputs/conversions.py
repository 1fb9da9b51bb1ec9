"""Conversions between the portal and a policy: amounts, and decisions as scaling requests. Pure."""

from __future__ import annotations

import math
import re
from collections.abc import Collection, Mapping
from typing import NamedTuple

from jobs.elastic.policy.model import UNLIMITED, Amounts, Cluster, Decision, Node
from jobs.messages import elastic as messages
from runtime.messages import mapped

_MEGABYTE = 10**6
_KEY = re.compile(r"`([^`]+)`")
_FOREIGN, _SERVICE = messages.JOB_OF_ANOTHER_NAMESPACE(), messages.CLUSTER_SERVICE()
# Steps of priority. Their weight is defined by the policy.
PRIORITIES: Mapping[str, int] = {"low": -1, "normal": 0, "high": 1}


class ScalingRequest(NamedTuple):
    """A change of a job's desired number of trainers from ``before`` to ``after``."""

    job: str
    before: int
    after: int
    why: str


def asked(amounts: Mapping[str, float]) -> Amounts:
    """Convert a request (cores, bytes, GPUs) to amounts, rounded up."""
    memory = -(-int(amounts.get("memory", 0)) // _MEGABYTE)
    return Amounts(round(amounts.get("cpu", 0) * 1000), memory, int(amounts.get("gpu", 0)))


def offered(amounts: Mapping[str, float]) -> Amounts:
    """Convert a limit to amounts, rounded down. A resource that is not named is unlimited."""
    cpu, memory = amounts.get("cpu"), amounts.get("memory")
    return Amounts(
        UNLIMITED if cpu is None else math.floor(cpu * 1000 + 1e-6),
        UNLIMITED if memory is None else int(memory) // _MEGABYTE,
        int(amounts.get("gpu", UNLIMITED)),
    )


def one_node(name: str, machine: Mapping[str, float], capacity: Mapping[str, float]) -> Node:
    """Return a machine as a node. Capacities that admins have set override those of the machine."""
    return Node(name, offered({**machine, **capacity}))


def scaling_requests(cluster: Cluster, decision: Decision, movable: Collection[str]) -> list[ScalingRequest]:
    """Return the changes to make now, shrinking jobs first."""
    found = []
    for job in cluster.jobs:
        fewer, more = sum(decision.victims.get(job.key, {}).values()), sum(decision.grants.get(job.key, {}).values())
        after = max(job.least, min(job.most, job.size - fewer + more))
        if job.key in movable and after != job.size:
            found.append(ScalingRequest(job.key, job.size, after, decision.messages[job.key]))
    return sorted(found, key=lambda request: request.after > request.before)


def worded(message: str, cluster: Cluster, names: Mapping[str, str], reader: str) -> str:
    """Return a decision's message for members of the namespace ``reader``.

    Jobs of that namespace appear by name. Jobs of other namespaces and services of the cluster stay anonymous.
    """
    namespaces = {job.key: job.namespace for job in cluster.jobs}
    services = {service.key for service in cluster.services}

    def named(found: re.Match[str]) -> str:
        key = found[1]
        if key in services:
            return _SERVICE
        if key not in namespaces:
            return found[0]
        return f"`{names.get(key, key)}`" if namespaces[key] == reader else _FOREIGN

    return mapped(message, lambda text: _KEY.sub(named, text))
