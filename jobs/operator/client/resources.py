"""API paths of the kinds of object that the controller uses."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from jobs.operator.model import names


@dataclass(frozen=True)
class Resource:
    """A kind of object. ``selector``: label selector of the objects of PaddleJobs; others are ignored."""

    kind: str
    prefix: str
    plural: str
    selector: str = ""

    def path(self, namespace: str = "", name: str = "", subresource: str = "") -> str:
        """Return the path of all objects, of those in a namespace, or of one object."""
        parts = [self.prefix, f"namespaces/{namespace}" if namespace else "", self.plural, name, subresource]
        return "/".join(part for part in parts if part)


JOBS = Resource(names.KIND, f"/apis/{names.API_VERSION}", names.PLURAL)
NAMESPACES = Resource("Namespace", "/api/v1", "namespaces")
NODES = Resource("Node", "/api/v1", "nodes")
PODS = Resource("Pod", "/api/v1", "pods", names.RESOURCE_TYPE_LABEL)
# Pods of any owner.
ALL_PODS = Resource("Pod", "/api/v1", "pods")
SERVICES = Resource("Service", "/api/v1", "services", names.JOB_LABEL)
CONFIG_MAPS = Resource("ConfigMap", "/api/v1", "configmaps", names.RESOURCE_NAME_LABEL)
POD_GROUPS = Resource("PodGroup", "/apis/scheduling.volcano.sh/v1beta1", "podgroups", names.JOB_LABEL)
EVENTS = Resource("Event", "/api/v1", "events")
LEASES = Resource("Lease", "/apis/coordination.k8s.io/v1", "leases")

RESOURCES: Mapping[str, Resource] = {
    resource.kind: resource for resource in (JOBS, NODES, PODS, SERVICES, CONFIG_MAPS, POD_GROUPS, EVENTS, LEASES)
}
