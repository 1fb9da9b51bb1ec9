"""The table of all values of an installation: path, kind, default, check and description.

The parser, its error messages and ``deploy/values.yaml`` follow from it. A default is what ``deploy/kubernetes`` has.
Names are those of common Helm charts.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from portal.deployment import kinds
from portal.deployment.kinds import FLAG, INTEGER, MAPPING, MAPPINGS, QUANTITY, TEXT, TEXT_PAIRS, TEXTS, Check, Kind


@dataclass(frozen=True, slots=True)
class Field:
    """One value. ``path`` has dots; no field is below another one."""

    path: str
    kind: Kind
    default: Any
    description: str
    check: Check = kinds.anything


_VERSION = re.compile(r"1\.(2[0-9]|[3-9][0-9])")
_PATH = re.compile(r"/[^\s:]*")
_BUCKET = re.compile(r"[a-z0-9][a-z0-9.-]{1,61}[a-z0-9]")
_SERVER = re.compile(r"[A-Za-z0-9.\[\]:-]+:\d{1,5}")
_DRIVER = re.compile(r"[a-z0-9]([a-z0-9.-]*[a-z0-9])?")
# Volumes that the Pod Security Standard `restricted` admits and that several pods can share.
_SHARED_VOLUMES = ("csi", "persistentVolumeClaim")


def _networks(value: list[str]) -> str:
    for text in value:
        try:
            ipaddress.ip_network(text)
        except ValueError:
            return f"{text!r} is not an address or a network such as 10.244.1.0/24"
    return ""


def _tolerations(value: list[Mapping[str, Any]]) -> str:
    known = {"key", "operator", "value", "effect", "tolerationSeconds"}
    strange = sorted({str(name) for item in value for name in item} - known)
    return f"{strange[0]!r} is not a field of a toleration: {', '.join(sorted(known))}" if strange else ""


def _affinity(value: Mapping[str, Any]) -> str:
    known = ("nodeAffinity", "podAffinity", "podAntiAffinity")
    strange = sorted(str(name) for name in value if name not in known)
    return f"{strange[0]!r} is not one of {', '.join(known)}" if strange else ""


def _tls(value: list[Mapping[str, Any]]) -> str:
    for item in value:
        if not item.keys() <= {"secretName", "hosts"} or not isinstance(item.get("secretName"), str):
            return "an item has secretName, a text, and optionally hosts, a list of texts"
        if problem := kinds.object_name(item["secretName"]):
            return problem
        if not TEXTS.accepts(item.get("hosts", [])):
            return "hosts is a list of texts"
    return ""


def _shared_volume(value: Mapping[str, Any]) -> str:
    if not value:
        return ""
    if len(value) != 1 or next(iter(value)) not in _SHARED_VOLUMES:
        return (
            f"pods of jobs can mount {' or '.join(_SHARED_VOLUMES)}. "
            "Their namespaces enforce the Pod Security Standard restricted, which refuses other volumes"
        )
    return "" if isinstance(next(iter(value.values())), dict) else "the volume has no mapping with its fields"


# --- Groups of fields ------------------------------------------------------------------------------------------------
def _image(path: str, what: str, registry: str, repository: str, tag: str, inherited: str = "") -> Iterator[Field]:
    otherwise = f"; empty: {inherited}" if inherited else ""
    tag_check = kinds.optional_tag if inherited else kinds.tag
    yield Field(f"{path}.registry", TEXT, registry, f"Registry of {what}{otherwise.format('registry')}", kinds.registry)
    yield Field(f"{path}.repository", TEXT, repository, f"Repository of {what}", kinds.repository)
    yield Field(f"{path}.tag", TEXT, tag, f"Tag of {what}{otherwise.format('tag')}", tag_check)


def _resources(path: str, requests: tuple[str, str], limits: tuple[str, str]) -> Iterator[Field]:
    for kind, amounts in (("requests", requests), ("limits", limits)):
        verb = "Requested" if kind == "requests" else "Maximum"
        for resource, amount in zip(("cpu", "memory"), amounts, strict=True):
            description = f"{verb} {'cores' if resource == 'cpu' else 'memory'} of each replica"
            yield Field(f"{path}.resources.{kind}.{resource}", QUANTITY, amount, description, kinds.quantity)


def _process(path: str, requests: tuple[str, str], limits: tuple[str, str]) -> Iterator[Field]:
    yield Field(f"{path}.replicaCount", INTEGER, 2, "Number of replicas", kinds.between(1, 100))
    yield from _resources(path, requests, limits)


def _placement(path: str, what: str, own: tuple[str, str]) -> Iterator[Field]:
    dot = f"{path}." if path else ""
    yield Field(f"{dot}nodeSelector", TEXT_PAIRS, {}, f"Labels of the nodes for {what}")
    yield Field(f"{dot}tolerations", MAPPINGS, [], f"Tolerations of {what}{own[0]}", _tolerations)
    yield Field(f"{dot}affinity", MAPPING, {}, f"Affinity of {what}{own[1]}", _affinity)


def _server_volume(path: str, size: str) -> Iterator[Field]:
    persistence = f"{path}.persistence"
    yield Field(
        f"{persistence}.storageClass",
        TEXT,
        "",
        "Storage class (ReadWriteOnce); empty: the default of the cluster",
        kinds.optional_object_name,
    )
    yield Field(f"{persistence}.size", QUANTITY, size, "Size of each volume", kinds.quantity)


def _external(path: str, what: str, keys: Mapping[str, str]) -> Iterator[Field]:
    yield Field(
        f"{path}.existingSecret",
        TEXT,
        "",
        f"Secret with the address of {what}; empty: the Secret in existingSecret",
        kinds.optional_object_name,
    )
    for name, variable in keys.items():
        yield Field(f"{path}.{name}", TEXT, variable, f"Its key with the value of {variable}", kinds.secret_key)


def _installation() -> Iterator[Field]:
    yield Field(
        "kubeVersion",
        TEXT,
        "1.21",
        "Version of the cluster, which chooses API versions",
        kinds.matching(_VERSION, "a version of Kubernetes such as 1.29, at least 1.20"),
    )
    yield from _image("image", "the portal's image", "registry.example.com", "regatta/portal", "0.1.0")
    yield Field(
        "image.pullPolicy",
        TEXT,
        "",
        "Pull policy of all images; empty: the default of the cluster",
        kinds.one_of("", "Always", "IfNotPresent", "Never"),
    )
    yield Field(
        "image.pullSecrets",
        TEXTS,
        ["registry"],
        "Secrets in regatta-system with which nodes pull images",
        kinds.object_name,
    )
    yield Field("existingSecret", TEXT, "portal", "Secret made by deploy/make_secrets.py", kinds.object_name)
    yield Field(
        "extraSecrets",
        TEXTS,
        [],
        "Further Secrets whose keys are settings, such as REGATTA_OIDC_SECRET",
        kinds.object_name,
    )
    yield Field(
        "signUp",
        TEXT,
        "approval",
        "Who can create an account: open, approval or closed",
        kinds.one_of("open", "approval", "closed"),
    )
    yield from _placement(
        "", "all pods of the platform", (", in addition to their own", "; replaces their own rules of the same name")
    )


def _processes() -> Iterator[Field]:
    yield from _process("web", ("250m", "384Mi"), ("2", "1Gi"))
    yield Field("web.autoscaling.enabled", FLAG, False, "Whether a HorizontalPodAutoscaler sets the replicas")
    yield Field("web.autoscaling.minReplicas", INTEGER, 2, "Minimum number of replicas", kinds.between(1, 100))
    yield Field("web.autoscaling.maxReplicas", INTEGER, 6, "Maximum number of replicas", kinds.between(1, 100))
    yield Field(
        "web.autoscaling.targetCPUUtilizationPercentage",
        INTEGER,
        75,
        "Desired CPU usage, in percent of the request",
        kinds.between(1, 1000),
    )
    yield from _process("worker", ("100m", "256Mi"), ("2", "2Gi"))
    yield from _process("sweep", ("100m", "256Mi"), ("1", "1Gi"))
    yield from _image("controller.image", "the controller's image", "", "regatta/controller", "", "image.{}")
    yield from _process("controller", ("100m", "128Mi"), ("1", "512Mi"))
    yield from _process("coordinationGateway", ("100m", "128Mi"), ("2", "1Gi"))
    yield Field(
        "coordinationGateway.existingSecret", TEXT, "servers", "Secret with COORDINATION_GATEWAY_KEY", kinds.object_name
    )


def _access() -> Iterator[Field]:
    yield Field("ingress.enabled", FLAG, True, "Whether to create an Ingress")
    yield Field(
        "ingress.className",
        TEXT,
        "nginx",
        "Ingress class; empty: the default of the cluster",
        kinds.optional_object_name,
    )
    yield Field("ingress.annotations", TEXT_PAIRS, {}, "Annotations; those of deploy/kubernetes/ingress.yaml stay")
    yield Field("ingress.hosts", TEXTS, ["train.example.org"], "Host names of the portal", kinds.host_name)
    yield Field(
        "ingress.tls",
        MAPPINGS,
        [{"secretName": "portal-tls"}],
        "Secrets with certificates, optionally with hosts of each. Empty: a proxy before the ingress terminates HTTPS",
        _tls,
    )
    yield Field(
        "ingress.controllerNamespace", TEXT, "ingress-nginx", "Namespace of the ingress controller", kinds.object_name
    )
    yield Field(
        "ingress.trustedProxies",
        TEXTS,
        [],
        "Required: addresses or networks of the ingress controller's pods",
        _networks,
    )


def _images_of_jobs() -> Iterator[Field]:
    yield Field(
        "registry.address",
        TEXT,
        "registry.example.com/regatta",
        "Registry and prefix for images of jobs",
        kinds.registry,
    )
    yield Field("registry.insecure", FLAG, False, "Whether this registry uses HTTP without TLS")
    yield Field(
        "registry.existingSecret",
        TEXT,
        "registry",
        "Secret with its credentials, in regatta-system and regatta-builds; empty: it needs none",
        kinds.optional_object_name,
    )
    yield Field("builds.baseImage", TEXT, "python:3.11-slim", "Base image of jobs")
    yield Field(
        "builds.packageIndex", TEXT, "", "Package index for requirements of jobs (PIP_INDEX_URL)", kinds.address
    )
    yield Field("builds.trustedHost", TEXT, "", "Host of a package index without TLS (PIP_TRUSTED_HOST)")
    yield from _placement("jobs", "pods of jobs", ("", ""))
    yield Field("jobs.gpuResource", TEXT, "nvidia.com/gpu", "Extended resource that counts as a GPU")


def _contents() -> Iterator[Field]:
    yield Field(
        "persistence.existingClaim",
        TEXT,
        "",
        "Existing claim to use instead of creating portal-data",
        kinds.optional_object_name,
    )
    yield Field(
        "persistence.storageClass",
        TEXT,
        "",
        "Storage class (ReadWriteMany); empty: the default of the cluster",
        kinds.optional_object_name,
    )
    yield Field("persistence.size", QUANTITY, "100Gi", "Size of the volume", kinds.quantity)
    yield Field(
        "s3.bucket",
        TEXT,
        "",
        "Bucket for code, artifacts and datasets; empty: they are on the volume",
        kinds.matching(_BUCKET, "a name of a bucket", empty=True),
    )
    yield Field("s3.prefix", TEXT, "", "Prefix of all objects in the bucket")
    yield Field("s3.endpoint", TEXT, "", "Address of the service; empty: Amazon S3", kinds.address)
    yield Field("s3.region", TEXT, "", "Region of the bucket")
    yield Field(
        "s3.existingSecret",
        TEXT,
        "",
        "Secret with AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY",
        kinds.optional_object_name,
    )
    yield Field("checkpoints.nfs.server", TEXT, "", "NFS server of the checkpoint volume; empty: none")
    yield Field(
        "checkpoints.nfs.path",
        TEXT,
        "/",
        "Exported directory, which user 10001 owns",
        kinds.matching(_PATH, "an absolute path"),
    )
    yield Field(
        "checkpoints.nfs.csiDriver",
        TEXT,
        "nfs.csi.k8s.io",
        "CSI driver, with inline volumes turned on",
        kinds.matching(_DRIVER, "a name of a CSI driver"),
    )
    yield Field(
        "checkpoints.volume",
        MAPPING,
        {},
        "Another volume for checkpoints: csi or persistentVolumeClaim",
        _shared_volume,
    )
    yield Field("checkpoints.intervalSeconds", INTEGER, 600, "Seconds between checkpoints", kinds.between(1, 86400))


def _servers() -> Iterator[Field]:
    yield Field("postgresql.enabled", FLAG, True, "Whether to run PostgreSQL. Use your own for high availability")
    yield from _image("postgresql.image", "the PostgreSQL image", "", "postgres", "16")
    yield Field("postgresql.existingSecret", TEXT, "servers", "Secret with POSTGRES_PASSWORD", kinds.object_name)
    yield from _server_volume("postgresql", "50Gi")
    yield from _resources("postgresql", ("250m", "512Mi"), ("2", "2Gi"))
    yield from _external(
        "externalPostgresql",
        "PostgreSQL, if postgresql.enabled is false",
        {"existingSecretKey": "REGATTA_DATABASE_URL"},
    )
    yield Field("redis.enabled", FLAG, True, "Whether to run Redis")
    yield from _image("redis.image", "the Redis image", "", "redis", "7")
    yield Field("redis.existingSecret", TEXT, "servers", "Secret with REDIS_PASSWORD", kinds.object_name)
    yield from _resources("redis", ("100m", "64Mi"), ("1", "512Mi"))
    yield from _external(
        "externalRedis",
        "Redis, if redis.enabled is false",
        {"brokerSecretKey": "REGATTA_BROKER_URL", "existingSecretKey": "REGATTA_REDIS_URL"},
    )
    yield Field("etcd.enabled", FLAG, True, "Whether to run etcd")
    yield from _image("etcd.image", "the etcd image", "quay.io", "coreos/etcd", "v3.6.16")
    yield from _server_volume("etcd", "8Gi")
    yield from _resources("etcd", ("100m", "128Mi"), ("1", "1Gi"))
    yield from _external(
        "externalEtcd", "etcd, if etcd.enabled is false", {"existingSecretKey": "REGATTA_COORDINATION"}
    )
    yield Field(
        "externalEtcd.servers",
        TEXTS,
        [],
        "Its servers, HOST:PORT, for the coordination gateway",
        kinds.matching(_SERVER, "HOST:PORT"),
    )
    yield Field("externalEtcd.networks", TEXTS, [], "Their addresses or networks, for the network policy", _networks)


def _operation() -> Iterator[Field]:
    yield Field("mail.from", TEXT, "regatta@localhost", "Sender of e-mails")
    yield Field(
        "mail.existingSecret",
        TEXT,
        "",
        "Secret with the address of the mail server; empty: e-mails are in the log of the sweep",
        kinds.optional_object_name,
    )
    yield Field(
        "mail.existingSecretKey",
        TEXT,
        "REGATTA_MAIL_SERVER",
        "Its key with smtp://user:password@host:587",
        kinds.secret_key,
    )
    yield Field(
        "traces.endpoint",
        TEXT,
        "",
        "Address of an OTLP/HTTP collector such as http://otel-collector.monitoring:4318; empty: no traces",
        kinds.address,
    )
    yield Field(
        "traces.existingSecret",
        TEXT,
        "",
        "Secret with headers of its requests, such as an authorization; empty: it needs none",
        kinds.optional_object_name,
    )
    yield Field(
        "traces.existingSecretKey",
        TEXT,
        "REGATTA_OTLP_HEADERS",
        "Its key with NAME=VALUE,NAME=VALUE",
        kinds.secret_key,
    )
    yield Field("metrics.namespace", TEXT, "monitoring", "Namespace of Prometheus", kinds.object_name)
    yield Field("settings", TEXT_PAIRS, {}, "Further settings of the portal by name (deploy/README.md)")


_GROUPS = (_installation, _processes, _access, _images_of_jobs, _contents, _servers, _operation)
FIELDS: tuple[Field, ...] = tuple(field for group in _GROUPS for field in group())
BY_PATH: Mapping[str, Field] = {field.path: field for field in FIELDS}
# Comments above sections of deploy/values.yaml.
SECTIONS: Mapping[str, str] = {
    "image": "The image of web, worker, sweep and coordination gateway. Build pods use it too.",
    "web": "Pages, API, ingest and websockets.",
    "worker": "Hints of Celery. Jobs continue without it, later.",
    "sweep": "Periodic tasks: all changes of job states.",
    "controller": "The PaddleJob controller.",
    "coordinationGateway": "Between agents of jobs and etcd.",
    "ingress": "Access from outside.",
    "registry": "The registry that the platform pushes images of jobs to.",
    "builds": "Builds of these images, in regatta-builds.",
    "jobs": "Pods of jobs.",
    "persistence": "The volume of the portal: contents, uploads in progress, datasets in use.",
    "s3": "A bucket of Amazon S3 or a compatible service.",
    "checkpoints": "A volume that all nodes can mount. Without it, a job that loses all processes starts again.",
    "postgresql": "The database. Its pod is not moved from a dead node.",
    "externalPostgresql": "Address: postgresql://user:password@host:port/name?sslmode=require",
    "externalRedis": "Addresses: redis://:password@host:port/number. Use two numbers.",
    "externalEtcd": "Address: etcd://root:password@host:port,host:port/prefix",
    "traces": "OpenTelemetry traces. Only the platform's own processes reach the collector, never pods of jobs.",
    "mail": "With signUp open or approval, people confirm their address by e-mail.",
}
