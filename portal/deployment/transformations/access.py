"""Access from outside: host names, the Ingress, and the namespaces that network policies admit."""

from __future__ import annotations

import copy
from typing import Any

from portal.deployment.objects import SYSTEM, Object, Objects, changed, named, without
from portal.deployment.transformations.environment import with_settings
from portal.deployment.values import Values

# The host of probes, which call the pod by no name of the outside.
_INSIDE = f"portal.{SYSTEM}"
_NAMESPACE_LABEL = "kubernetes.io/metadata.name"


def host_names(objects: Objects, values: Values) -> Objects:
    proxies = ",".join(values["ingress.trustedProxies"])
    hosts = ",".join([*values["ingress.hosts"], _INSIDE])
    return with_settings(objects, {"REGATTA_ALLOWED_HOSTS": hosts, "REGATTA_TRUSTED_PROXIES": proxies or None})


def ingress(objects: Objects, values: Values) -> Objects:
    """Set class, annotations, hosts and certificates of the Ingress, or drop it. Each host has the rule of the
    manifest."""
    if not values["ingress.enabled"]:
        return without(objects, named("Ingress"))

    def fill(body: Object) -> None:
        spec, metadata = body["spec"], body["metadata"]
        metadata["annotations"] = {**metadata.get("annotations", {}), **values["ingress.annotations"]}
        _set(spec, "ingressClassName", values["ingress.className"])
        hosts = values["ingress.hosts"]
        _set(spec, "tls", [{"hosts": item.get("hosts") or hosts, **_secret(item)} for item in values["ingress.tls"]])
        rule = spec["rules"][0]
        spec["rules"] = [{**copy.deepcopy(rule), "host": host} for host in hosts]

    return changed(objects, named("Ingress", "portal"), fill)


def _secret(item: dict[str, Any]) -> dict[str, str]:
    return {"secretName": item["secretName"]}


def _set(spec: dict[str, Any], name: str, value: Any) -> None:
    if value:
        spec[name] = value
    else:
        spec.pop(name, None)


def ingress_controller(objects: Objects, values: Values) -> Objects:
    """Admit the namespace of the ingress controller to the web process."""
    return _admitting(objects, "portal-web", values["ingress.controllerNamespace"])


def prometheus(objects: Objects, values: Values) -> Objects:
    """Admit the namespace of Prometheus to the metrics."""
    return _admitting(objects, "monitoring", values["metrics.namespace"])


def _admitting(objects: Objects, policy: str, namespace: str) -> Objects:
    """Return the objects with another namespace where the policy selects one by its name."""

    def admit(body: Object) -> None:
        for rule in body["spec"]["ingress"]:
            for peer in rule.get("from", ()):
                labels = peer.get("namespaceSelector", {}).get("matchLabels", {})
                if _NAMESPACE_LABEL in labels:
                    labels[_NAMESPACE_LABEL] = namespace

    return changed(objects, named("NetworkPolicy", policy), admit)
