"""K3: reaction time of the PaddleJob controller, with 1,000 jobs on a real API server.

Every job has one pod, which no scheduler places, so only the API server works. 300 pods are deleted, five per second.
The time from the request of a deletion until a watch reports the replacement pod counts. Needs a cluster (KUBECONFIG)
in which ``deploy/kubernetes/crd.yaml`` is applied. Creates its own namespace.
"""

from __future__ import annotations

import os
import random
import subprocess
import sys
import threading
import time
import uuid
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

from bench.report import Row, missed
from jobs.operator.client.api import ApiServer, Refusal, connect
from jobs.operator.client.resources import JOBS, PODS
from jobs.operator.model import names

COUNT, DELETIONS, A_SECOND = 1000, 300, 5
GOAL = 1.0
_PATIENCE = 300.0  # seconds


def measure() -> list[Row]:
    kubeconfig = os.environ.get("KUBECONFIG")
    case = f"event to action, p99 of {DELETIONS}, {COUNT} jobs, seconds"
    if not kubeconfig:
        return [missed("K3", case, f"<= {GOAL:g}", "KUBECONFIG names no cluster")]
    api = connect(kubeconfig, 16)
    with _namespace(api) as namespace, _controller(kubeconfig, namespace):
        with ThreadPoolExecutor(8) as pool:
            list(pool.map(lambda number: api.call("POST", JOBS.path(namespace), _job(number)), range(COUNT)))
        seconds = sorted(Reactions(api, namespace).measured())
    p99 = seconds[int(len(seconds) * 0.99)]
    return [Row("K3", case, round(p99, 3), f"<= {GOAL:g}", p99 <= GOAL)]


class Reactions:
    """Deletes pods, and watches for their replacements."""

    def __init__(self, api: ApiServer, namespace: str) -> None:
        self._api, self._path = api, PODS.path(namespace)
        self._asked: dict[str, tuple[str, float]] = {}  # by name: UID of the deleted pod, and time of the request
        self._answered: list[float] = []
        self._ready = threading.Event()

    def measured(self) -> list[float]:
        pods = self._all_pods()
        threading.Thread(target=self._watch, daemon=True).start()
        self._ready.wait(_PATIENCE)
        chosen = random.Random(7).sample(sorted(pods), DELETIONS)
        for name in chosen:
            self._asked[name] = (pods[name], time.perf_counter())
            self._api.call("DELETE", f"{self._path}/{name}", {"gracePeriodSeconds": 0})
            time.sleep(1 / A_SECOND)
        deadline = time.monotonic() + _PATIENCE
        while len(self._answered) < DELETIONS:
            if time.monotonic() > deadline:
                raise RuntimeError(f"only {len(self._answered)} of {DELETIONS} pods have come back")
            time.sleep(0.1)
        return self._answered

    def _all_pods(self) -> dict[str, str]:
        deadline = time.monotonic() + _PATIENCE
        while True:
            pods = {names.name_of(pod): names.uid_of(pod) for pod in self._api.call("GET", self._path)["items"]}
            if len(pods) == COUNT:
                time.sleep(5)  # time for the controller's last statuses
                return pods
            if time.monotonic() > deadline:
                raise RuntimeError(f"only {len(pods)} of {COUNT} pods have been made")
            time.sleep(1)

    def _watch(self) -> None:
        version = self._api.call("GET", self._path, query={"limit": "1"})["metadata"]["resourceVersion"]
        self._ready.set()
        for event in self._api.watch(self._path, {"resourceVersion": version}, _PATIENCE):
            seen = time.perf_counter()
            uid, asked = self._asked.get(names.name_of(event["object"]), ("", 0.0))
            if event["type"] == "ADDED" and asked and names.uid_of(event["object"]) != uid:
                self._answered.append(seen - asked)


def _job(number: int) -> dict[str, Any]:
    container = {"name": "train", "image": "registry.example.com/none:1"}
    template = {"spec": {"schedulerName": "nobody", "containers": [container]}}
    roles = {"worker": {"replicas": 1, "template": template}}
    return {"apiVersion": names.API_VERSION, "kind": names.KIND, "metadata": {"name": f"j{number}"}, "spec": roles}


@contextmanager
def _namespace(api: ApiServer) -> Iterator[str]:
    name, path = f"bench-{uuid.uuid4().hex[:8]}", "/api/v1/namespaces"
    api.call("POST", path, {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})
    try:
        while not _is_there(api, f"{path}/{name}/serviceaccounts/default"):
            time.sleep(0.2)
        yield name
    finally:
        api.call("DELETE", f"{path}/{name}")


def _is_there(api: ApiServer, path: str) -> bool:
    try:
        api.call("GET", path)
    except Refusal:
        return False
    return True


@contextmanager
def _controller(kubeconfig: str, namespace: str) -> Iterator[None]:
    command = [sys.executable, "-m", "jobs.operator", "run", "--kubeconfig", kubeconfig, "--namespace", namespace]
    process = subprocess.Popen([*command, "--listen", "127.0.0.1:0", "--log-level", "warning"])
    try:
        yield
    finally:
        process.terminate()
        process.wait(30)
