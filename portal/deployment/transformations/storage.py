"""Volumes of the portal and its servers, the bucket, and the volume of checkpoints."""

from __future__ import annotations

import json
from typing import Any

from portal.deployment.objects import Object, Objects, changed, containers_of, is_of_portal, named, pod_of, without
from portal.deployment.transformations.environment import with_secret_variables, with_settings
from portal.deployment.values import Values, unless_default

_CLAIM = "portal-data"
_AWS_KEYS = ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY")
CHECKPOINTS_DIR = "/var/lib/regatta-checkpoints"


def portal_volume(objects: Objects, values: Values) -> Objects:
    """Set class and size of the portal's volume, or use an existing claim."""
    existing = values["persistence.existingClaim"]
    if existing:
        return _with_claim(without(objects, named("PersistentVolumeClaim", _CLAIM)), existing)

    def size(claim: Object) -> None:
        _size(claim["spec"], "persistence", values)

    return changed(objects, named("PersistentVolumeClaim", _CLAIM), size)


def _with_claim(objects: Objects, name: str) -> Objects:
    def use(workload: Object) -> None:
        for volume in pod_of(workload)["volumes"]:
            if volume.get("persistentVolumeClaim", {}).get("claimName") == _CLAIM:
                volume["persistentVolumeClaim"]["claimName"] = name

    return changed(objects, is_of_portal, use)


def _size(spec: dict[str, Any], section: str, values: Values) -> None:
    spec["resources"] = {"requests": {"storage": values[f"{section}.size"]}}
    if storage_class := values[f"{section}.storageClass"]:
        spec["storageClassName"] = storage_class


def server_volumes(objects: Objects, values: Values) -> Objects:
    """Set class and size of the volumes of PostgreSQL and etcd."""

    def size(workload: Object) -> None:
        for template in workload["spec"]["volumeClaimTemplates"]:
            _size(template["spec"], f"{workload['metadata']['name']}.persistence", values)

    return changed(objects, named("StatefulSet", "postgresql", "etcd"), size)


def bucket(objects: Objects, values: Values) -> Objects:
    """Store contents in a bucket instead of the volume."""
    name = values["s3.bucket"]
    prefix = values["s3.prefix"].strip("/")
    settings = {
        "REGATTA_STORAGE": f"s3://{name}/{prefix}".rstrip("/") if name else None,
        "REGATTA_S3_ENDPOINT": values["s3.endpoint"] or None,
        "REGATTA_S3_REGION": values["s3.region"] or None,
    }
    with_bucket = with_settings(objects, settings)
    if not values["s3.existingSecret"]:
        return with_bucket
    return with_secret_variables(with_bucket, values["s3.existingSecret"], {key: key for key in _AWS_KEYS})


def checkpoints(objects: Objects, values: Values) -> Objects:
    """Mount the volume of checkpoints into the portal's pods, and name it for pods of jobs."""
    interval = unless_default(values, "checkpoints.intervalSeconds")
    timed = with_settings(objects, {"REGATTA_CHECKPOINT_SECONDS": interval})
    volume = _checkpoint_volume(values)
    if not volume:
        return timed

    def mount(workload: Object) -> None:
        pod_of(workload)["volumes"].append({"name": "checkpoints", **volume})
        for container in containers_of(workload):
            container["volumeMounts"].append({"name": "checkpoints", "mountPath": CHECKPOINTS_DIR})

    settings = {
        "REGATTA_KUBERNETES_CHECKPOINTS": json.dumps(volume, sort_keys=True),
        "REGATTA_KUBERNETES_CHECKPOINTS_DIR": CHECKPOINTS_DIR,
    }
    return with_settings(changed(timed, is_of_portal, mount), settings)


def _checkpoint_volume(values: Values) -> dict[str, Any]:
    server = values["checkpoints.nfs.server"]
    if not server:
        return dict(values["checkpoints.volume"])
    attributes = {"server": server, "share": values["checkpoints.nfs.path"]}
    return {"csi": {"driver": values["checkpoints.nfs.csiDriver"], "volumeAttributes": attributes}}
