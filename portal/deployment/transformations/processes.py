"""Replicas, resources and nodes of the platform's processes, and API versions of the cluster."""

from __future__ import annotations

from collections.abc import Mapping

from portal.deployment.objects import (
    SYSTEM,
    Object,
    Objects,
    changed,
    containers_of,
    is_workload,
    name_of,
    named,
    pod_of,
)
from portal.deployment.values import Values

# Sections of the values file by the name of their workload.
SECTIONS: Mapping[str, str] = {
    "portal-web": "web",
    "portal-worker": "worker",
    "portal-sweep": "sweep",
    "paddlejob-controller": "controller",
    "coordination-gateway": "coordinationGateway",
    "postgresql": "postgresql",
    "redis": "redis",
    "etcd": "etcd",
}
_REPLICATED = tuple(name for name, section in SECTIONS.items() if section not in ("postgresql", "redis", "etcd"))
_POLICY_V1 = (1, 21)


def replicas(objects: Objects, values: Values) -> Objects:
    def set_replicas(workload: Object) -> None:
        workload["spec"]["replicas"] = values[f"{SECTIONS[name_of(workload)]}.replicaCount"]

    return changed(objects, named("Deployment", *_REPLICATED), set_replicas)


def autoscaling(objects: Objects, values: Values) -> Objects:
    """Add a HorizontalPodAutoscaler for the web process. The Deployment then states no replicas, so that applying it
    again does not scale it. Every version of Kubernetes has the API version."""
    if not values["web.autoscaling.enabled"]:
        return objects

    def drop_replicas(workload: Object) -> None:
        del workload["spec"]["replicas"]

    scaler = {
        "apiVersion": "autoscaling/v1",
        "kind": "HorizontalPodAutoscaler",
        "metadata": {"name": "portal-web", "namespace": SYSTEM},
        "spec": {
            "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "portal-web"},
            **{
                name: values[f"web.autoscaling.{name}"]
                for name in ("minReplicas", "maxReplicas", "targetCPUUtilizationPercentage")
            },
        },
    }
    return (*changed(objects, named("Deployment", "portal-web"), drop_replicas), scaler)


def resources(objects: Objects, values: Values) -> Objects:
    """Set the resources of all containers of a process: the init container has those of the process."""

    def set_resources(workload: Object) -> None:
        section = SECTIONS.get(name_of(workload))
        if section is None:
            return
        for container in containers_of(workload):
            container["resources"] = {
                kind: {name: values[f"{section}.resources.{kind}.{name}"] for name in ("cpu", "memory")}
                for kind in ("requests", "limits")
            }

    return changed(objects, is_workload, set_resources)


def placement(objects: Objects, values: Values) -> Objects:
    """Select the nodes of all pods. Tolerations are added to those that a pod has; a rule of affinity replaces the one
    of the same name."""

    def place(workload: Object) -> None:
        pod = pod_of(workload)
        if selector := values["nodeSelector"]:
            pod["nodeSelector"] = selector
        if tolerations := values["tolerations"]:
            pod["tolerations"] = [*pod.get("tolerations", ()), *tolerations]
        if affinity := values["affinity"]:
            pod["affinity"] = {**pod.get("affinity", {}), **affinity}

    return changed(objects, is_workload, place)


def api_versions(objects: Objects, values: Values) -> Objects:
    """Give disruption budgets the API version of the cluster."""
    version = tuple(int(part) for part in values["kubeVersion"].split("."))

    def set_version(body: Object) -> None:
        body["apiVersion"] = "policy/v1" if version >= _POLICY_V1 else "policy/v1beta1"

    return changed(objects, named("PodDisruptionBudget"), set_version)
