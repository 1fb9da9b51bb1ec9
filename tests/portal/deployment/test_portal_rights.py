"""Rights of the portal's service account in ``deploy/kubernetes``, compared with the requests that the portal makes."""

from __future__ import annotations

import io
import time
from collections.abc import Callable, Iterator, Mapping
from datetime import timedelta
from pathlib import Path
from typing import Any, NamedTuple, cast

import pytest
import yaml

from jobs.backends import factory
from jobs.backends.base import AttemptRef
from jobs.backends.kubernetes.backend import KubernetesBackend
from jobs.backends.kubernetes.manifests import Cluster
from jobs.builds.images import pod_builder
from jobs.builds.images.build_request import Order
from jobs.builds.images.plan import Image, Kind
from jobs.elastic.controller.cluster_watch import ClusterWatch
from jobs.operator.tenants.namespace_manifests import ClusterConfig, Tenant
from jobs.operator.tenants.namespace_sync import Tenants, address_of_the_api
from portal.system import servers
from runtime import contract
from tests.contracts.backend_contract import make_plan
from tests.jobs.operator.api_servers import FaithfulServer
from tests.jobs.operator.secretive_server import SecretiveServer

FOLDER = Path(__file__).parents[3] / "deploy" / "kubernetes"
SYSTEM, TENANT, BUILDS = "regatta-system", "regatta-team", "regatta-builds"
ACCOUNT = {"kind": "ServiceAccount", "name": "portal", "namespace": SYSTEM}
VERBS = {"POST": {"create"}, "PUT": {"update"}, "PATCH": {"patch"}, "DELETE": {"delete"}, "WATCH": {"watch"}}
VERBS |= {"APPLY": {"patch", "create"}}
Call = tuple[str, str]


class Target(NamedTuple):
    """What a request is about. An empty namespace: an object of the cluster, or objects of all namespaces."""

    namespace: str
    group: str
    resource: str
    name: str


def target(path: str) -> Target:
    parts = path.strip("/").split("/")
    group = "" if parts[0] == "api" else parts[1]
    parts = parts[2:] if parts[0] == "api" else parts[3:]
    namespace = parts[1] if parts[0] == "namespaces" and len(parts) > 2 else ""
    resource, name, subresource = [*(parts[2:] if namespace else parts), "", ""][:3]
    return Target(namespace, group, f"{resource}/{subresource}" if subresource else resource, name)


def rules() -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Yield the rules of the portal's account, each with its namespace; an empty one: in the whole cluster.

    ``TENANT`` stands for every namespace that the portal creates: there it binds the role ``regatta-tenant`` to itself.
    """
    files = [FOLDER / name for name in ("portal-rights.yaml", "builds.yaml")]
    objects = [body for file in files for body in yaml.safe_load_all(file.read_text())]
    roles = {(one["kind"], one["metadata"].get("namespace", ""), one["metadata"]["name"]): one for one in objects}
    yield from ((TENANT, rule) for rule in roles["ClusterRole", "", "regatta-tenant"]["rules"])
    for body in objects:
        if body["kind"] in ("RoleBinding", "ClusterRoleBinding") and ACCOUNT in body["subjects"]:
            namespace, reference = body["metadata"].get("namespace", ""), body["roleRef"]
            of = namespace if reference["kind"] == "Role" else ""
            yield from ((namespace, rule) for rule in roles[reference["kind"], of, reference["name"]]["rules"])


def is_allowed(verb: str, wanted: Target) -> bool:
    return any(
        namespace in ("", wanted.namespace)
        and wanted.group in rule["apiGroups"]
        and wanted.resource in rule["resources"]
        and verb in rule["verbs"]
        and wanted.name in rule.get("resourceNames", [wanted.name])
        for namespace, rule in rules()
    )


def refused(calls: list[Call]) -> set[tuple[str, Target]]:
    """Return the requests for which the manifests grant no right."""
    wanted = {(method, target(path)) for method, path in calls if path != "/version"}
    return {
        (verb, on)
        for method, on in wanted
        for verb in VERBS.get(method, {"get" if on.name else "list"})
        if not is_allowed(verb, on)
    }


class Recorder:
    """API server that answers each request with the same object."""

    def __init__(self, answer: Mapping[str, Any]) -> None:
        self.calls: list[Call] = []
        self._answer = answer

    def call(self, method: str, path: str, body: Any = None, query: Any = None) -> dict[str, Any]:
        self.calls.append((method, path))
        return dict(self._answer)

    def text(self, path: str, query: Any = None) -> str:
        self.calls.append(("GET", path))
        return ""


class ServerWithoutMemoryForSecrets(FaithfulServer):
    """API server that stores no Secrets and whose pods have empty logs."""

    def call(self, method: str, path: str, body: Any = None, query: Mapping[str, str] | None = None) -> dict[str, Any]:
        if "/secrets" not in path:
            return super().call(method, path, body, query)
        self.calls.append((method, path))
        return {}

    def stream(self, path: str, query: Mapping[str, str], silence: float) -> Iterator[bytes]:
        self.calls.append(("GET", path))
        yield from ()


# --- What the portal does on the cluster -----------------------------------------------------------------------------
def system_page(patch: pytest.MonkeyPatch) -> list[Call]:
    api = Recorder({})
    patch.setattr(factory, "api_server", lambda: api)
    servers.kubernetes()
    return api.calls


def namespaces(patch: pytest.MonkeyPatch) -> list[Call]:
    """Create a namespace, repair it, and remove it."""
    api, team = SecretiveServer(), Tenant("team", {"cpu": 4.0, "memory": 1024.0, "gpu": 0})
    tenants = Tenants(api, ClusterConfig("regatta", "regatta-", f"{SYSTEM}/portal", credentials="{}"))
    tenants.ensure(team)
    for body in api.objects.values():
        body.get("spec", {}).clear()
    tenants.sweep([team], [])
    api.objects[f"/apis/batch.paddlepaddle.org/v1/namespaces/{TENANT}/paddlejobs/job"] = {"metadata": {"name": "job"}}
    tenants.sweep([], ["team"])
    tenants.sweep([], ["team"])
    return api.calls


def attempt(patch: pytest.MonkeyPatch) -> list[Call]:
    """Launch an attempt and use every request of the backend."""
    api = ServerWithoutMemoryForSecrets()
    backend = KubernetesBackend(cast(Any, api), Cluster(image="registry/runtime:1", prefix="regatta-"))
    plan = make_plan(Path(), {contract.COORDINATION: "sqlite:////regatta/store.sqlite3"})
    requests: list[Callable[[AttemptRef], object]] = [
        backend.observe,
        lambda ref: backend.container(ref, "trainer-0"),
        lambda ref: list(backend.printed(ref, "trainer-0", 0)),
        lambda ref: backend.scale(ref, "trainer", 3),
        lambda ref: backend.restart(ref, "trainer-0", 2),
        lambda ref: backend.kill(ref, "trainer-0"),
        lambda ref: backend.stop(ref, timedelta(seconds=1)),
        backend.cleanup,
    ]
    backend.launch(plan)
    backend.launch(plan)
    for request in requests:
        request(plan.ref)
    return api.calls


def image_build(patch: pytest.MonkeyPatch) -> list[Call]:
    api = Recorder({"status": {"phase": "Succeeded"}})
    image = Image(Kind.JOB, "registry.example/jobs/code:1", "registry.example/base:1", "/job")
    order = Order((image,), "registry.example", False, "", 60.0, 2**30, "pod", "", namespace=BUILDS, tools="tools:1")
    pod_builder.Pods(order, time.monotonic() + 60, io.StringIO(), cast(Any, api)).make(image, Path())
    return api.calls


def elastic_jobs(patch: pytest.MonkeyPatch) -> list[Call]:
    api = FaithfulServer()
    ClusterWatch(api).look()
    watched = [("WATCH", path) for method, path in api.calls]
    return [*api.calls, *watched]


def address_of_the_api_server(patch: pytest.MonkeyPatch) -> list[Call]:
    api = Recorder({"subsets": []})
    address_of_the_api(cast(Any, api))
    return api.calls


@pytest.mark.parametrize(
    "activity", [system_page, namespaces, attempt, image_build, elastic_jobs, address_of_the_api_server]
)
def test_the_manifests_grant_the_rights_that_the_portal_uses(
    activity: Callable[[pytest.MonkeyPatch], list[Call]], monkeypatch: pytest.MonkeyPatch, settings: Any
) -> None:
    settings.CLUSTER_BACKEND = "kubernetes"
    calls = activity(monkeypatch)
    assert calls
    assert refused(calls) == set()


def test_of_the_leases_the_portal_reads_that_of_the_controller_alone() -> None:
    own = Target(SYSTEM, "coordination.k8s.io", "leases", "paddlejob-controller")
    allowed = {
        verb for verb in ("get", "list", "watch", "create", "update", "patch", "delete") if is_allowed(verb, own)
    }
    assert allowed == {"get"}
    assert not is_allowed("get", own._replace(name="another"))
