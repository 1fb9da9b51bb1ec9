"""Images of the platform's pods: names, pull policy, pull secrets."""

from __future__ import annotations

from collections.abc import Mapping

from portal.deployment.fields import FIELDS
from portal.deployment.objects import (
    SYSTEM,
    Object,
    Objects,
    changed,
    containers_of,
    is_workload,
    named,
    pod_of,
)
from portal.deployment.values import Values

_SECTIONS = ("image", "controller.image", "postgresql.image", "redis.image", "etcd.image")
_DEFAULTS: Values = {field.path: field.default for field in FIELDS}


def image_of(section: str, values: Values) -> str:
    """Return the image of a section. An empty registry or tag of the controller is that of the portal's image."""
    registry, repository, tag = (values[f"{section}.{part}"] for part in ("registry", "repository", "tag"))
    if section == "controller.image":
        registry, tag = registry or values["image.registry"], tag or values["image.tag"]
    return f"{registry}/{repository}:{tag}" if registry else f"{repository}:{tag}"


def replaced_images(values: Values) -> Mapping[str, str]:
    """Return the image of this installation by the image in the manifests, which is the default."""
    return {image_of(section, _DEFAULTS): image_of(section, values) for section in _SECTIONS}


def images(objects: Objects, values: Values) -> Objects:
    """Set the image of each container. An image that is no default stays."""
    by_default = replaced_images(values)

    def set_images(workload: Object) -> None:
        for container in containers_of(workload):
            container["image"] = by_default.get(container["image"], container["image"])

    return changed(objects, is_workload, set_images)


def pull_policy(objects: Objects, values: Values) -> Objects:
    policy = values["image.pullPolicy"]
    if not policy:
        return objects

    def set_policy(workload: Object) -> None:
        for container in containers_of(workload):
            container["imagePullPolicy"] = policy

    return changed(objects, is_workload, set_policy)


def pull_secrets(objects: Objects, values: Values) -> Objects:
    """Name the pull secrets in all pods, and in the service accounts of the platform's namespace."""
    secrets = [{"name": name} for name in values["image.pullSecrets"]]

    def set_in_pod(workload: Object) -> None:
        pod_of(workload)["imagePullSecrets"] = secrets

    def set_in_account(account: Object) -> None:
        if account["metadata"]["namespace"] == SYSTEM:
            account["imagePullSecrets"] = secrets

    with_pods = changed(objects, is_workload, set_in_pod)
    return changed(with_pods, named("ServiceAccount"), set_in_account)
