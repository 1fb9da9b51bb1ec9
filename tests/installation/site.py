"""What the operator of the cluster already has: volumes, an ingress controller, a certificate, Prometheus."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).parents[2]
HOST = "train.example.org"
# As the user of each server in the manifests.
_VOLUMES = {
    "portal-data": ("regatta-system", 10001, "ReadWriteMany", "100Gi"),
    "data-postgresql-0": ("regatta-system", 999, "ReadWriteOnce", "50Gi"),
    "data-etcd-0": ("regatta-system", 10001, "ReadWriteOnce", "8Gi"),
    "data-etcd-1": ("regatta-system", 10001, "ReadWriteOnce", "8Gi"),
    "data-etcd-2": ("regatta-system", 10001, "ReadWriteOnce", "8Gi"),
}
_INGRESS, _MONITORING = "ingress-nginx", "monitoring"
_MONITORING_FILES = ROOT / "deploy" / "monitoring"
_SCRAPE, _PORT = "prometheus.io/scrape", "prometheus.io/port"
# One request goes to another pod if a pod refuses the connection, as ingress-nginx does.
_NGINX = """\
daemon off;
pid /tmp/nginx.pid;
error_log /dev/stderr warn;
events {}
http {
    access_log off;
    client_body_temp_path /tmp/body;
    proxy_temp_path /tmp/proxy;
    fastcgi_temp_path /tmp/fastcgi;
    uwsgi_temp_path /tmp/uwsgi;
    scgi_temp_path /tmp/scgi;
    client_max_body_size 0;
    upstream portal { server PORTAL:8000 max_fails=0; server PORTAL:8000 max_fails=0; server PORTAL:8000 max_fails=0; }
    map $http_upgrade $connection_upgrade { default upgrade; '' ''; }
    server {
        listen 8443 ssl;
        ssl_certificate /tls/tls.crt;
        ssl_certificate_key /tls/tls.key;
        location / {
            proxy_pass http://portal;
            proxy_http_version 1.1;
            proxy_connect_timeout 5s;
            proxy_read_timeout 1h;
            proxy_request_buffering off;
            proxy_set_header Host $host;
            proxy_set_header X-Forwarded-For $remote_addr;
            proxy_set_header X-Forwarded-Proto https;
            proxy_set_header Upgrade $http_upgrade;
            proxy_set_header Connection $connection_upgrade;
        }
    }
}
"""


class Kubectl:
    """The administrator's commands. Each fails with the output of both streams."""

    def __init__(self) -> None:
        self.command = [os.environ.get("KUBECTL", "kubectl"), "--kubeconfig", os.environ["KUBECONFIG"]]

    def __call__(self, *arguments: str, text: str | None = None, seconds: float = 300) -> str:
        done = subprocess.run(
            [*self.command, *arguments], input=text, capture_output=True, text=True, check=False, timeout=seconds
        )
        assert done.returncode == 0, f"kubectl {' '.join(arguments)}: {done.stdout[-2000:]}{done.stderr[-3000:]}"
        return done.stdout

    def json(self, *arguments: str) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self(*arguments, "--output=json"))
        return found

    def apply(self, *bodies: Mapping[str, Any]) -> None:
        self("apply", "-f", "-", text=yaml.safe_dump_all(bodies))


def make_certificate(folder: Path) -> None:
    """Write ``fullchain.pem`` and ``privkey.pem`` for the host."""
    command = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "90", "-subj", f"/CN={HOST}"]
    command += ["-addext", f"subjectAltName=DNS:{HOST}", "-keyout", "privkey.pem", "-out", "fullchain.pem"]
    subprocess.run(command, cwd=folder, check=True, capture_output=True)


class Volumes:
    """Volumes in directories that all nodes share with this machine (``KUBE_VOLUMES``).

    Without this setting the cluster's default storage class makes the volumes.
    """

    storage_class = "installation"

    def __init__(self, kubectl: Kubectl) -> None:
        self._kubectl = kubectl
        self._folder = Path(os.environ["KUBE_VOLUMES"]) if "KUBE_VOLUMES" in os.environ else None

    def make(self) -> None:
        if self._folder is None:
            return
        self.remove()
        for name, (_, owner, _, _) in _VOLUMES.items():
            folder = self._folder / name
            folder.mkdir(parents=True)
            os.chown(folder, owner, owner)
        self._kubectl.apply(*(self._volume(self._folder, name) for name in _VOLUMES))

    def remove(self) -> None:
        if self._folder is not None:
            self._kubectl("delete", "persistentvolume", "--ignore-not-found", *_VOLUMES)
            for name in _VOLUMES:
                shutil.rmtree(self._folder / name, ignore_errors=True)

    def values(self) -> dict[str, Any]:
        if self._folder is None:
            return {}
        chosen = {"persistence": {"storageClass": self.storage_class}}
        return {**chosen, "postgresql": chosen, "etcd": chosen}

    def _volume(self, folder: Path, name: str) -> dict[str, Any]:
        namespace, _, mode, size = _VOLUMES[name]
        return {
            "apiVersion": "v1",
            "kind": "PersistentVolume",
            "metadata": {"name": name},
            "spec": {
                "storageClassName": self.storage_class,
                "claimRef": {"namespace": namespace, "name": name},
                "accessModes": [mode],
                "capacity": {"storage": size},
                "persistentVolumeReclaimPolicy": "Retain",
                "hostPath": {"path": str(folder / name)},
            },
        }


def _server(namespace: str, name: str, image: str, **container: Any) -> dict[str, Any]:
    labels = {"app.kubernetes.io/name": name}
    pod = {"volumes": container.pop("volumes"), **container.pop("pod", {})}
    spec = {"containers": [{"name": name, "image": image, **container}], **pod}
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": name, "namespace": namespace},
        "spec": {"selector": {"matchLabels": labels}, "template": {"metadata": {"labels": labels}, "spec": spec}},
    }


class Ingress:
    """nginx with HTTPS in the namespace of an ingress controller. It stays while the portal behind it changes."""

    def __init__(self, kubectl: Kubectl, image: str) -> None:
        self._kubectl, self._image = kubectl, image

    def start(self, portal: str, folder: Path) -> None:
        """Start it before the address ``portal`` with the certificate in the folder."""
        tls = {
            name: (folder / file).read_text()
            for name, file in (("tls.crt", "fullchain.pem"), ("tls.key", "privkey.pem"))
        }
        config = {"nginx.conf": _NGINX.replace("PORTAL", portal)}
        where = {"name": "nginx", "namespace": _INGRESS}
        names = {"name": _INGRESS, "labels": {"kubernetes.io/metadata.name": _INGRESS}}
        ports = {"port": 443, "targetPort": 8443}
        self._kubectl.apply(
            {"apiVersion": "v1", "kind": "Namespace", "metadata": names},
            {"apiVersion": "v1", "kind": "ConfigMap", "metadata": where, "data": config},
            {"apiVersion": "v1", "kind": "Secret", "metadata": where, "stringData": tls},
            {
                "apiVersion": "v1",
                "kind": "Service",
                "metadata": where,
                "spec": {"selector": {"app.kubernetes.io/name": "nginx"}, "ports": [ports]},
            },
            _server(
                _INGRESS,
                "nginx",
                self._image,
                command=["/usr/sbin/nginx", "-c", "/config/nginx.conf"],
                securityContext={"runAsUser": 101, "runAsGroup": 101},
                readinessProbe={"tcpSocket": {"port": 8443}, "periodSeconds": 1},
                volumeMounts=[{"name": "config", "mountPath": "/config"}, {"name": "tls", "mountPath": "/tls"}],
                volumes=[
                    {"name": "config", "configMap": {"name": "nginx"}},
                    {"name": "tls", "secret": {"secretName": "nginx"}},
                ],
            ),
        )
        self._kubectl("-n", _INGRESS, "rollout", "restart", "deployment/nginx")  # it reads its configuration once
        self._kubectl("-n", _INGRESS, "rollout", "status", "deployment/nginx", "--timeout=3m")

    def address(self) -> str:
        service = self._kubectl.json("-n", _INGRESS, "get", "service", "nginx")
        return str(service["spec"]["clusterIP"])


class Prometheus:
    """Prometheus with the rules in ``deploy/monitoring``, in a namespace.

    Debian's Prometheus has no discovery of Kubernetes pods. The targets are found here, by the annotations that the
    example configuration in ``deploy/monitoring`` reads.
    """

    def __init__(self, kubectl: Kubectl, image: str, namespace: str = _MONITORING) -> None:
        self._kubectl, self._image, self._namespace = kubectl, image, namespace

    def start(self) -> None:
        where = {"name": "prometheus", "namespace": self._namespace}
        names = {"name": self._namespace, "labels": {"kubernetes.io/metadata.name": self._namespace}}
        files = {"prometheus.yaml": self._config(), "alerts.yaml": (_MONITORING_FILES / "alerts.yaml").read_text()}
        self._kubectl.apply(
            {"apiVersion": "v1", "kind": "Namespace", "metadata": names},
            {"apiVersion": "v1", "kind": "ConfigMap", "metadata": where, "data": files},
            _server(
                self._namespace,
                "prometheus",
                self._image,
                command=["prometheus", "--config.file=/config/prometheus.yaml", "--storage.tsdb.path=/tmp/data"],
                readinessProbe={"httpGet": {"path": "/-/ready", "port": 9090}, "periodSeconds": 1},
                volumeMounts=[{"name": "config", "mountPath": "/config"}],
                volumes=[{"name": "config", "configMap": {"name": "prometheus"}}],
            ),
        )
        self._kubectl("-n", self._namespace, "rollout", "status", "deployment/prometheus", "--timeout=3m")

    def _config(self) -> str:
        """Return the example configuration with one target for each annotated pod."""
        config = yaml.safe_load((_MONITORING_FILES / "prometheus.yaml").read_text())
        config["global"]["scrape_interval"] = "2s"
        config["global"]["scrape_timeout"] = "2s"
        (job,) = [each for each in config["scrape_configs"] if each["job_name"] == "regatta"]
        for discovery in ("kubernetes_sd_configs", "relabel_configs"):
            del job[discovery]
        job["static_configs"] = list(map(_target, self._annotated_pods()))
        return yaml.safe_dump(config)

    def _annotated_pods(self) -> list[dict[str, Any]]:
        pods = self._kubectl.json("-n", "regatta-system", "get", "pods")["items"]
        annotated = [pod for pod in pods if (pod["metadata"].get("annotations") or {}).get(_SCRAPE) == "true"]
        return [pod for pod in annotated if pod["status"].get("phase") == "Running"]

    def targets(self) -> list[dict[str, Any]]:
        """Return the active targets of the job ``regatta``, as Prometheus sees them."""
        pods = self._kubectl.json("-n", self._namespace, "get", "pods", "-l", "app.kubernetes.io/name=prometheus")
        (name,) = [pod["metadata"]["name"] for pod in pods["items"] if "deletionTimestamp" not in pod["metadata"]]
        path = f"/api/v1/namespaces/{self._namespace}/pods/{name}:9090/proxy/api/v1/targets?state=active"
        found = json.loads(self._kubectl("get", "--raw", path))["data"]["activeTargets"]
        return [target for target in found if target["labels"]["job"] == "regatta"]


def _target(pod: Mapping[str, Any]) -> dict[str, Any]:
    metadata = pod["metadata"]
    labels = {"app": metadata["labels"]["app.kubernetes.io/name"], "pod": metadata["name"]}
    return {"targets": [f"{pod['status']['podIP']}:{metadata['annotations'][_PORT]}"], "labels": labels}


def remove_all(kubectl: Kubectl) -> None:
    """Remove everything that this module creates, except the volumes."""
    kubectl("delete", "namespace", "--ignore-not-found", _INGRESS, _MONITORING, f"{_MONITORING}-elsewhere")
