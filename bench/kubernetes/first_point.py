"""K1: time from submission to the first cost point on a real cluster, compared with the cluster's own time.

The peer is ``kubectl apply`` of as many bare pods of the same image and size, until all of them run. Rounds alternate.
The image, which the platform builds from the job's code, is in the registry and on the node before, and the pods of one
round are gone before the next. Needs KUBECONFIG, REGISTRY and KUBECTL like ``make test-kube``. Creates its own
namespace.
"""

from __future__ import annotations

import json
import os
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from typing import Any
from urllib.parse import urlsplit

import yaml

from bench.environment.etcd import running_etcd
from bench.pages.start import Running, running_here, seconds_to_first_point
from bench.report import Row, missed
from jobs.operator.client.api import ApiServer, connect
from jobs.operator.client.resources import PODS
from jobs.operator.model.namespace_names import name_of

ROUNDS, GOAL = 5, 1.5
BASE = "base/python-numpy:3.11"
_PREFIX = f"bench-{os.getpid()}-"
_SIZE = {"cpu": "200m", "memory": "256Mi"}
_PATIENCE = 300.0  # seconds
_TRAINERS, _PSERVERS = 2, 2
_PODS = 1 + _PSERVERS + _TRAINERS
_ROLES = {"trainer": {"replicas": _TRAINERS, **_SIZE}, "pserver": {"replicas": _PSERVERS, **_SIZE}}


def measure() -> list[Row]:
    kubeconfig, registry = os.environ.get("KUBECONFIG"), os.environ.get("REGISTRY")
    case = f"POST to first cost point, {_PODS} pods, median of {ROUNDS}, seconds"
    if not kubeconfig or not registry:
        return [missed("K1", case, f"<= {GOAL:g} x", "KUBECONFIG or REGISTRY names no cluster")]
    api = connect(kubeconfig, 4)
    with (
        tempfile.TemporaryDirectory(prefix="regatta-bench-") as scratch,
        _namespace(api) as namespace,
        _portal(Path(scratch), kubeconfig, registry) as portal,
    ):
        image = warm_image(api, namespace, portal)
        bare_pods(api, kubeconfig, namespace, image)
        rounds = [(bare_pods(api, kubeconfig, namespace, image), job(api, namespace, portal)) for _ in range(ROUNDS)]
    peer, ours = median(one for one, _ in rounds), median(one for _, one in rounds)
    ratio = ours / peer
    return [Row("K1", case, round(ours, 2), f"<= {GOAL:g} x", ratio <= GOAL, round(peer, 2), round(ratio, 2))]


@contextmanager
def _namespace(api: ApiServer) -> Iterator[str]:
    name = name_of("admin", _PREFIX)
    api.call("POST", "/api/v1/namespaces", {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})
    try:
        yield name
    finally:
        api.call("DELETE", f"/api/v1/namespaces/{name}")


@contextmanager
def _portal(scratch: Path, kubeconfig: str, registry: str) -> Iterator[Running]:
    host = _own_address(kubeconfig)
    settings = {
        "REGATTA_BACKEND": "kubernetes",
        "REGATTA_KUBECONFIG": kubeconfig,
        "REGATTA_REGISTRY": f"{registry}/bench",
        "REGATTA_REGISTRY_INSECURE": "1",
        "REGATTA_BASE_IMAGE": f"{registry}/{BASE}",
        "REGATTA_KUBERNETES_PREFIX": _PREFIX,
        "REGATTA_KUBERNETES_NAMESPACES": "0",  # created here
    }
    with (
        running_etcd(scratch, host) as store,
        running_here(scratch, host, REGATTA_COORDINATION=store, **settings) as portal,
    ):
        yield portal


def _own_address(kubeconfig: str) -> str:
    """Return this machine's address as seen from the cluster."""
    server = yaml.safe_load(Path(kubeconfig).read_text())["clusters"][0]["cluster"]["server"]
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as line:
        line.connect((urlsplit(server).hostname, 9))
        return str(line.getsockname()[0])


def job(api: ApiServer, namespace: str, portal: Running) -> float:
    """Return the seconds from submission to the first cost point. The job's pods are gone on return."""
    seconds = seconds_to_first_point(portal, fresh=False, roles=_ROLES)
    _wait(lambda: not api.call("GET", PODS.path(namespace))["items"])
    return seconds


def warm_image(api: ApiServer, namespace: str, portal: Running) -> str:
    """Return the job's image, after a run in which it was built, pushed and pulled."""
    with ThreadPoolExecutor(1) as beside:
        first = beside.submit(job, api, namespace, portal)
        _wait(lambda: api.call("GET", PODS.path(namespace))["items"])
        image = api.call("GET", PODS.path(namespace))["items"][0]["spec"]["containers"][0]["image"]
        first.result()
    return str(image)


def bare_pods(api: ApiServer, kubeconfig: str, namespace: str, image: str) -> float:
    """Return the seconds from ``kubectl apply`` until all pods run. They are gone on return."""
    pods = {"apiVersion": "v1", "kind": "List", "items": [_pod(number, image) for number in range(_PODS)]}
    command = [os.environ.get("KUBECTL", "kubectl"), "--kubeconfig", kubeconfig, "--namespace", namespace]
    begun = time.monotonic()
    subprocess.run([*command, "apply", "-f", "-"], input=json.dumps(pods), text=True, check=True, capture_output=True)
    _wait(lambda: [one["status"].get("phase") for one in _bare(api, namespace)] == ["Running"] * _PODS)
    seconds = time.monotonic() - begun
    for one in _bare(api, namespace):
        api.call("DELETE", PODS.path(namespace, one["metadata"]["name"]), {"gracePeriodSeconds": 0})
    _wait(lambda: not _bare(api, namespace))
    return seconds


def _pod(number: int, image: str) -> dict[str, Any]:
    container = {
        "name": "sleeps",
        "image": image,
        "command": ["sleep", "3600"],
        "resources": {"requests": _SIZE, "limits": _SIZE},
    }
    metadata = {"name": f"bare-{number}", "labels": {"bench": "bare"}}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": {"containers": [container]}}


def _bare(api: ApiServer, namespace: str) -> list[Any]:
    return list(api.call("GET", PODS.path(namespace), query={"labelSelector": "bench=bare"})["items"])


def _wait(holds: Any) -> None:
    deadline = time.monotonic() + _PATIENCE
    while not holds():
        if time.monotonic() > deadline:
            raise RuntimeError("The cluster did not do what was waited for.")
        time.sleep(0.05)
