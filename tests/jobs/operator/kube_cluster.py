"""A real cluster, from the environment: KUBECONFIG, REGISTRY (which has ``base/python:3.11``) and KUBECTL."""

from __future__ import annotations

import base64
import json
import os
import subprocess
import sys
import threading
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

import yaml

from jobs.operator.client.api import CONFLICT, MISSING, Refusal, connect
from jobs.operator.client.resources import JOBS, NAMESPACES, RESOURCES, Resource
from jobs.operator.model import names
from jobs.operator.tenants import namespace_manifests
from tests.jobs.operator import leftovers
from tests.waiting import until

Found = TypeVar("Found")

_ROOT = Path(__file__).parents[3]
SYSTEM = "regatta-system"  # namespace of the platform
PORTAL = f"{SYSTEM}/portal"  # service account of the portal
SECONDS = 180.0  # a cluster on two shared cores
_LAST_EVENTS = 30
_REVIEWS = "/apis/authorization.k8s.io/v1/subjectaccessreviews"
_ENDPOINTS = Resource("Endpoints", "/api/v1", "endpoints")
# What kubectl says when another test run has created or changed the same object at the same time.
_OVERTAKEN = ("AlreadyExists", "Conflict")


def own_prefix(kind: str) -> str:
    """Return a prefix for namespaces that no other test run has."""
    return f"{kind}-{leftovers.MARK}-"


class Controller:
    """A process ``python -m jobs.operator run`` for the namespaces with the prefix, by default those of this test run.

    There is one lease: of test files that run at once, only one has a controller that ``elects``.
    """

    def __init__(self, kubeconfig: str, *, prefix: str = "", elects: bool = False) -> None:
        self._kubeconfig, self._prefix, self._elects = kubeconfig, prefix or own_prefix("paddlejob"), elects
        self._process: subprocess.Popen[str] | None = None

    def start(self) -> None:
        command = [sys.executable, "-m", "jobs.operator", "run", "--kubeconfig", self._kubeconfig]
        options = ["--listen", "127.0.0.1:0", "--namespace-prefix", self._prefix, "--lost-seconds", "30"]
        options += ["--lease-namespace", SYSTEM] if self._elects else []
        environment = {**os.environ, leftovers.RUN: leftovers.MARK}
        self._process = subprocess.Popen(
            [*command, *options], cwd=_ROOT, env=environment, stderr=subprocess.PIPE, text=True
        )
        assert self._process.stderr is not None
        lines: list[str] = []
        for line in self._process.stderr:
            lines.append(line)
            if "leading" in line:
                break
        else:
            raise AssertionError(f"the controller has ended: {''.join(lines)}")
        # A process blocks when it writes to a full pipe.
        threading.Thread(target=self._process.stderr.read, daemon=True).start()

    def kill(self) -> None:
        assert self._process is not None
        self._process.kill()
        self._process.wait()

    def stop(self) -> int:
        assert self._process is not None
        self._process.terminate()
        return self._process.wait(60)


class Cluster:
    """One namespace of the cluster."""

    def __init__(self) -> None:
        self.kubeconfig, self.registry = _from_environment("KUBECONFIG"), _from_environment("REGISTRY")
        self.api = connect(self.kubeconfig, 4)
        self.namespace = f"{own_prefix('paddlejob')}{uuid.uuid4().hex[:6]}"

    @property
    def image(self) -> str:
        return f"{self.registry}/base/python:3.11"

    @contextmanager
    def with_namespace(self) -> Iterator[Cluster]:
        path = "/api/v1/namespaces"
        self.api.call("POST", path, {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": self.namespace}})
        try:
            account = f"{path}/{self.namespace}/serviceaccounts/default"
            self.until("the namespace has its service account", lambda: self.is_there(account))
            yield self
        finally:
            self.api.call("DELETE", f"{path}/{self.namespace}")

    def define(self) -> None:
        """Apply the CustomResourceDefinition and the rights of the platform, and wait until the API server serves them.

        Leftovers of killed test runs are removed.
        """
        leftovers.remove(self.api)
        for name in ("crd", "namespace", "rights", "portal-rights"):
            path = _ROOT / "deploy" / "kubernetes" / f"{name}.yaml"
            self.until(f"{path.name} is applied", lambda path=path: self._applied(path))
        self.until("PaddleJobs are served", lambda: self.is_there(JOBS.path()))
        self.until_allowed("paddlejob-controller", "list", JOBS)
        self.until_allowed("portal", "create", NAMESPACES)
        self.until_allowed("portal", "get", _ENDPOINTS, "default", "kubernetes")

    def _applied(self, path: Path) -> bool:
        try:
            self.kubectl("apply", "-f", str(path), everywhere=True)
        except AssertionError as failed:
            if not any(word in str(failed) for word in _OVERTAKEN):
                raise
            return False
        return True

    def kubeconfig_of_the_controller(self, folder: Path) -> str:
        """Write a file like KUBECONFIG with only the rights of the controller's service account."""
        return self.kubeconfig_of("paddlejob-controller", folder)

    def kubeconfig_of(self, account: str, folder: Path) -> str:
        """Write a file like KUBECONFIG with the rights of any service account of the platform."""
        path, name = f"/api/v1/namespaces/{SYSTEM}/secrets", f"{account}-test"
        secret = {
            "metadata": {"name": name, "annotations": {"kubernetes.io/service-account.name": account}},
            "type": "kubernetes.io/service-account-token",
        }
        try:
            self.api.call("POST", path, secret)
        except Refusal as refusal:
            assert refusal.status == CONFLICT, refusal  # it exists
        self.until("there is a token", lambda: self.api.call("GET", f"{path}/{name}").get("data"))
        token = base64.b64decode(self.api.call("GET", f"{path}/{name}")["data"]["token"]).decode()
        own = yaml.safe_load(Path(self.kubeconfig).read_text())
        own["users"] = [{"name": user["name"], "user": {"token": token}} for user in own["users"]]
        file = folder / f"{account}.yaml"
        file.write_text(yaml.safe_dump(own))
        return str(file)

    def admit_the_portal(self, folder: Path) -> str:
        """Give the portal's account its rights in this namespace, as an admin does where the portal creates none.

        Return a file like KUBECONFIG with the rights of the account.
        """
        settings = namespace_manifests.ClusterConfig(portal="tests", account=PORTAL)
        wanted = namespace_manifests.objects(namespace_manifests.Tenant(self.namespace, {}), settings)
        (binding,) = [body for body in wanted if body["kind"] == "RoleBinding"]
        self.api.call("POST", namespace_manifests.KINDS["RoleBinding"].path(self.namespace), binding)
        self.until_allowed("portal", "list", JOBS, self.namespace)
        return self.kubeconfig_of("portal", folder)

    def until_allowed(self, account: str, verb: str, resource: Resource, namespace: str = "", name: str = "") -> None:
        """Wait until the API server applies a right of a service account of the platform.

        It may apply a binding a moment after the binding was written.
        """
        group = resource.prefix.removeprefix("/apis/").rpartition("/")[0] if "/apis/" in resource.prefix else ""
        wanted = {"verb": verb, "group": group, "resource": resource.plural, "namespace": namespace, "name": name}
        review = {"spec": {"user": f"system:serviceaccount:{SYSTEM}:{account}", "resourceAttributes": wanted}}
        self.until(
            f"{account} may {verb} {resource.plural}",
            lambda: self.api.call("POST", _REVIEWS, review)["status"]["allowed"],
        )

    def kubectl(self, *arguments: str, text: str | None = None, everywhere: bool = False) -> str:
        where = [] if everywhere else ["--namespace", self.namespace]
        command = [os.environ.get("KUBECTL", "kubectl"), "--kubeconfig", self.kubeconfig, *where, *arguments]
        done = subprocess.run(command, input=text, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        return done.stdout

    def apply(self, job: dict[str, Any]) -> str:
        return self.kubectl("apply", "-f", "-", text=yaml.safe_dump(job))

    def all(self, kind: str) -> list[dict[str, Any]]:
        """Return the objects of PaddleJobs, by name."""
        resource = RESOURCES[kind]
        query = {"labelSelector": resource.selector} if resource.selector else {}
        items = self.api.call("GET", resource.path(self.namespace), query=query)["items"]
        return sorted(items, key=names.name_of)

    def job(self, name: str) -> dict[str, Any]:
        return self.api.call("GET", JOBS.path(self.namespace, name))

    def status(self, name: str) -> dict[str, Any]:
        status: dict[str, Any] = self.job(name).get("status") or {}
        return status

    def wait_for(self, name: str, phase: str) -> dict[str, Any]:
        self.until(f"{name} is {phase}", lambda: self.status(name).get("phase") == phase)
        return self.status(name)

    def until(self, what: str, look: Callable[[], Found], seconds: float = SECONDS) -> Found:
        return until(what, look, seconds, story=self.diagnosis)

    def uids(self) -> dict[str, str]:
        """Return the UIDs of pods that are not being deleted, by name."""
        return {names.name_of(pod): names.uid_of(pod) for pod in self.all("Pod") if not names.is_leaving(pod)}

    def until_enforced(self, quota: str, *, namespace: str = "") -> None:
        """Wait until the quota is in force: its controller has to count first what the namespace uses."""
        path = f"/api/v1/namespaces/{namespace or self.namespace}/resourcequotas/{quota}"
        self.until(f"the quota {quota} is in force", lambda: self.api.call("GET", path).get("status", {}).get("hard"))

    def is_there(self, path: str) -> bool:
        try:
            self.api.call("GET", path)
        except Refusal as refusal:
            assert refusal.status == MISSING, refusal
            return False
        return True

    def diagnosis(self) -> str:
        """Return objects and events of the namespace and the nodes' capacity, for the message of a failed wait."""
        jobs = (f"{names.name_of(job)}: {json.dumps(job.get('status'))}" for job in self.all(names.KIND))
        events = self.kubectl("get", "events", "--sort-by=.lastTimestamp").splitlines()[-_LAST_EVENTS:]
        held = self.kubectl("describe", "nodes", everywhere=True).split("Allocated resources:")[1:]
        nodes = (node.partition("Events:")[0] for node in held)
        everybodys = self.kubectl("get", "pods", "--all-namespaces", "-o", "wide", everywhere=True)
        return "\n".join([f"== {self.namespace}", *jobs, *events, *nodes, everybodys])


def _from_environment(name: str) -> str:
    value = os.environ.get(name)
    assert value, f"Tests of the group kube need {name} in the environment: see make test-kube."
    return value
