"""PostgreSQL, Redis and etcd: their Secrets, or servers outside of the manifests instead."""

from __future__ import annotations

from collections.abc import Mapping
from ipaddress import ip_network
from typing import Any

from portal.deployment.objects import Object, Objects, changed, containers_of, is_workload, named, without
from portal.deployment.transformations.environment import with_secret_variables
from portal.deployment.values import Values

_KINDS = ("Service", "StatefulSet", "Deployment", "PodDisruptionBudget", "NetworkPolicy")
# Variables of the portal with the address of a server, and the field with the key in its Secret.
_ADDRESSES: Mapping[str, tuple[str, Mapping[str, str]]] = {
    "postgresql": ("externalPostgresql", {"REGATTA_DATABASE_URL": "existingSecretKey"}),
    "redis": ("externalRedis", {"REGATTA_BROKER_URL": "brokerSecretKey", "REGATTA_REDIS_URL": "existingSecretKey"}),
    "etcd": ("externalEtcd", {"REGATTA_COORDINATION": "existingSecretKey"}),
}
_SECRET_OF: Mapping[str, str] = {
    "POSTGRES_PASSWORD": "postgresql.existingSecret",
    "REDIS_PASSWORD": "redis.existingSecret",
    "COORDINATION_GATEWAY_KEY": "coordinationGateway.existingSecret",
}


def server_secrets(objects: Objects, values: Values) -> Objects:
    """Name the Secrets with the servers' passwords. Keys in them stay."""

    def rename(workload: Object) -> None:
        for container in containers_of(workload):
            for variable in container.get("env", ()):
                reference = variable.get("valueFrom", {}).get("secretKeyRef", {})
                if path := _SECRET_OF.get(reference.get("key", "")):
                    reference["name"] = values[path]

    return changed(objects, is_workload, rename)


def external_servers(objects: Objects, values: Values) -> Objects:
    """Drop servers that are turned off, and read their addresses from the named Secrets."""
    for server, (external, variables) in _ADDRESSES.items():
        if values[f"{server}.enabled"]:
            continue
        objects = without(objects, *(named(kind, server) for kind in _KINDS))
        if secret := values[f"{external}.existingSecret"]:
            keys = {name: values[f"{external}.{field}"] for name, field in variables.items()}
            objects = with_secret_variables(objects, secret, keys)
    return objects if values["etcd.enabled"] else _gateway_to(objects, values)


def _gateway_to(objects: Objects, values: Values) -> Objects:
    """Return the objects with the coordination gateway in front of external servers of etcd."""
    servers = values["externalEtcd.servers"]

    def name_servers(workload: Object) -> None:
        for container in containers_of(workload):
            for variable in container["env"]:
                if variable["name"] == "REGATTA_COORDINATION_SERVERS":
                    variable["value"] = f"etcd://{','.join(servers)}"

    def open_egress(policy: Object) -> None:
        own = {"podSelector": {"matchLabels": {"app.kubernetes.io/name": "etcd"}}}
        others = [rule for rule in policy["spec"]["egress"] if own not in rule.get("to", ())]
        policy["spec"]["egress"] = [_egress(values), *others]

    pointed = changed(objects, named("Deployment", "coordination-gateway"), name_servers)
    return changed(pointed, named("NetworkPolicy", "coordination-gateway"), open_egress)


def _egress(values: Values) -> dict[str, Any]:
    """Return the rule for the servers' ports: to the named networks, or to every address if none is named."""
    ports = sorted({int(server.rpartition(":")[2]) for server in values["externalEtcd.servers"]})
    networks = [{"ipBlock": {"cidr": str(ip_network(text))}} for text in values["externalEtcd.networks"]]
    to = {"to": networks} if networks else {}
    return {**to, "ports": [{"protocol": "TCP", "port": port} for port in ports]}
