"""Rendered installations for tests: values by path, and the objects that follow from them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import yaml

from portal.deployment.command import known_settings, manifests
from portal.deployment.objects import Object, Objects, name_of
from portal.deployment.render import rendered

KNOWN = known_settings()
FILES = manifests()
Given = Mapping[str, Any]
# An installation with all servers outside of the manifests.
EXTERNAL: Given = {
    "postgresql.enabled": False,
    "externalPostgresql.existingSecret": "database",
    "redis.enabled": False,
    "externalRedis.existingSecret": "queue",
    "etcd.enabled": False,
    "externalEtcd.existingSecret": "coordination",
    "externalEtcd.servers": ["etcd-1.example.org:2379", "etcd-2.example.org:2479"],
    "externalEtcd.networks": ["10.9.0.0/24"],
}
# A value of each field that differs from its default, with the values that it needs.
SAMPLES: Mapping[str, tuple[Any, Given]] = {
    "kubeVersion": ("1.20", {}),
    "image.registry": ("registry.site.org:5000", {}),
    "image.repository": ("team/portal", {}),
    "image.tag": ("2.0.0", {}),
    "image.pullPolicy": ("Always", {}),
    "image.pullSecrets": (["harbor", "mirror"], {}),
    "existingSecret": ("portal-2", {}),
    "extraSecrets": (["oidc"], {}),
    "signUp": ("closed", {}),
    "nodeSelector": ({"role": "platform"}, {}),
    "tolerations": ([{"key": "platform", "operator": "Exists"}], {}),
    "affinity": ({"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": []}}}, {}),
    "web.replicaCount": (5, {}),
    "web.autoscaling.enabled": (True, {}),
    "web.autoscaling.minReplicas": (3, {"web.autoscaling.enabled": True}),
    "web.autoscaling.maxReplicas": (9, {"web.autoscaling.enabled": True}),
    "web.autoscaling.targetCPUUtilizationPercentage": (50, {"web.autoscaling.enabled": True}),
    "worker.replicaCount": (3, {}),
    "sweep.replicaCount": (3, {}),
    "controller.image.registry": ("other.site.org", {}),
    "controller.image.repository": ("team/controller", {}),
    "controller.image.tag": ("1.9.9", {}),
    "controller.replicaCount": (1, {}),
    "coordinationGateway.replicaCount": (4, {}),
    "coordinationGateway.existingSecret": ("gateway", {}),
    "ingress.enabled": (False, {}),
    "ingress.className": ("traefik", {}),
    "ingress.annotations": ({"cert-manager.io/cluster-issuer": "site"}, {}),
    "ingress.hosts": (["train.site.org", "training.site.org"], {}),
    "ingress.tls": ([{"secretName": "site-tls"}], {}),
    "ingress.controllerNamespace": ("edge", {}),
    "ingress.trustedProxies": (["10.244.1.0/24", "10.244.2.7"], {}),
    "registry.address": ("registry.site.org:5000/jobs", {}),
    "registry.insecure": (True, {}),
    "registry.existingSecret": ("harbor", {}),
    "builds.baseImage": ("registry.site.org/base/python:3.11", {}),
    "builds.packageIndex": ("https://packages.site.org/simple", {}),
    "builds.trustedHost": ("packages.site.org", {}),
    "jobs.nodeSelector": ({"role": "training"}, {}),
    "jobs.tolerations": ([{"key": "training", "operator": "Exists"}], {}),
    "jobs.affinity": ({"nodeAffinity": {}}, {}),
    "jobs.gpuResource": ("example.org/gpu", {}),
    "persistence.existingClaim": ("site-data", {}),
    "persistence.storageClass": ("cephfs", {}),
    "persistence.size": ("1Ti", {}),
    "s3.bucket": ("regatta", {}),
    "s3.prefix": ("production", {"s3.bucket": "regatta"}),
    "s3.endpoint": ("https://ceph.site.org:8080", {"s3.bucket": "regatta"}),
    "s3.region": ("eu-1", {"s3.bucket": "regatta"}),
    "s3.existingSecret": ("bucket", {"s3.bucket": "regatta"}),
    "checkpoints.nfs.server": ("10.0.0.5", {}),
    "checkpoints.nfs.path": ("/checkpoints", {"checkpoints.nfs.server": "10.0.0.5"}),
    "checkpoints.nfs.csiDriver": ("nfs.site.org", {"checkpoints.nfs.server": "10.0.0.5"}),
    "checkpoints.volume": ({"csi": {"driver": "cephfs.site.org"}}, {}),
    "checkpoints.intervalSeconds": (120, {}),
    "postgresql.enabled": (False, {}),
    "postgresql.image.registry": ("mirror.site.org", {}),
    "postgresql.image.repository": ("library/postgres", {}),
    "postgresql.image.tag": ("16.4", {}),
    "postgresql.existingSecret": ("database", {}),
    "postgresql.persistence.storageClass": ("fast", {}),
    "postgresql.persistence.size": ("80Gi", {}),
    "externalPostgresql.existingSecret": ("database", {"postgresql.enabled": False}),
    "externalPostgresql.existingSecretKey": (
        "url",
        {"postgresql.enabled": False, "externalPostgresql.existingSecret": "database"},
    ),
    "redis.enabled": (False, {}),
    "redis.image.registry": ("mirror.site.org", {}),
    "redis.image.repository": ("library/redis", {}),
    "redis.image.tag": ("7.4", {}),
    "redis.existingSecret": ("queue", {}),
    "externalRedis.existingSecret": ("queue", {"redis.enabled": False}),
    "externalRedis.brokerSecretKey": ("broker", {"redis.enabled": False, "externalRedis.existingSecret": "queue"}),
    "externalRedis.existingSecretKey": ("url", {"redis.enabled": False, "externalRedis.existingSecret": "queue"}),
    "etcd.enabled": (False, EXTERNAL),
    "etcd.image.registry": ("mirror.site.org", {}),
    "etcd.image.repository": ("etcd/etcd", {}),
    "etcd.image.tag": ("v3.6.20", {}),
    "etcd.persistence.storageClass": ("fast", {}),
    "etcd.persistence.size": ("16Gi", {}),
    "externalEtcd.existingSecret": ("coordination-2", EXTERNAL),
    "externalEtcd.existingSecretKey": ("url", EXTERNAL),
    "externalEtcd.servers": (["etcd.example.org:2379"], EXTERNAL),
    "externalEtcd.networks": (["10.8.0.1"], EXTERNAL),
    "mail.from": ("portal@site.org", {}),
    "mail.existingSecret": ("mail", {}),
    "mail.existingSecretKey": ("url", {"mail.existingSecret": "mail"}),
    "traces.endpoint": ("http://collector.observability:4318", {}),
    "traces.existingSecret": ("collector", {"traces.endpoint": "http://collector:4318"}),
    "traces.existingSecretKey": (
        "headers",
        {"traces.endpoint": "http://collector:4318", "traces.existingSecret": "collector"},
    ),
    "metrics.namespace": ("observability", {}),
    "settings": ({"REGATTA_LOG_LEVEL": "DEBUG"}, {}),
    **{
        f"{section}.resources.{kind}.{resource}": ("3" if resource == "cpu" else "3Gi", {})
        for section in ("web", "worker", "sweep", "controller", "coordinationGateway", "postgresql", "redis", "etcd")
        for kind in ("requests", "limits")
        for resource in ("cpu", "memory")
    },
}


def nested(given: Given) -> dict[str, Any]:
    """Return values by path as the mapping of a values file."""
    found: dict[str, Any] = {}
    for path, value in given.items():
        *parents, name = path.split(".")
        here = found
        for parent in parents:
            here = here.setdefault(parent, {})
        here[name] = value
    return found


def values_file(given: Given) -> str:
    return yaml.safe_dump(nested(given))


def installation(given: Given | None = None) -> Objects:
    """Return the rendered objects of an installation with these values by path."""
    return rendered(FILES, values_file(given or {}), KNOWN).objects


def one(objects: Objects, kind: str, name: str) -> Object:
    (found,) = [body for body in objects if body["kind"] == kind and name_of(body) == name]
    return found


def settings_of(objects: Objects) -> dict[str, str]:
    return dict(one(objects, "ConfigMap", "portal")["data"])


def workloads(objects: Objects) -> Iterator[Object]:
    yield from (body for body in objects if body["kind"] in ("Deployment", "StatefulSet"))


def portal_workloads(objects: Objects) -> list[Object]:
    return [one(objects, "Deployment", f"portal-{name}") for name in ("web", "worker", "sweep")]
