"""The portal's namespaces on a real cluster, synchronised with the rights of the portal's account: ``make test-kube``.

A pod of the namespace checks which addresses the network policies allow; a pod outside it reaches all of them.
"""

from __future__ import annotations

import json
import socket
import threading
import uuid
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any
from urllib.parse import urlsplit

import pytest
import yaml

from jobs.elastic.controller.cluster_watch import ClusterWatch
from jobs.operator.client.api import KubeApi, Refusal, connect
from jobs.operator.client.resources import EVENTS, JOBS, NODES, PODS
from jobs.operator.model import names
from jobs.operator.model.namespace_names import name_of
from jobs.operator.tenants import namespace_manifests as manifests
from jobs.operator.tenants.namespace_manifests import ClusterConfig, Reach, Tenant
from jobs.operator.tenants.namespace_sync import Tenants
from tests.jobs.operator.kube_cluster import PORTAL, SYSTEM, Cluster, own_prefix

pytestmark = [pytest.mark.kube, pytest.mark.timeout(600)]

GIB = 1024**3
LISTEN = "import socket; server = socket.create_server(('', 8080))\nwhile True: server.accept()[0].close()"
# Seconds for an address that is open, enough on a machine with a high load, and for one that is closed.
OPEN_SECONDS, CLOSED_SECONDS = 90, 10
# Prints for each name whether its address answered within its seconds. All are tried at once.
PROBE = """
import json, os, socket, sys, time
from concurrent.futures import ThreadPoolExecutor
def reaches(wanted):
    target, seconds = wanted
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        try:
            if target.startswith("dns:"):
                socket.gethostbyname(target[4:])
            else:
                host, _, port = target.rpartition(":")
                socket.create_connection((host, int(port)), 3).close()
            return True
        except OSError:
            time.sleep(0.3)
    return False
targets = json.loads(sys.argv[1])
with ThreadPoolExecutor(len(targets)) as at_once:
    found = dict(zip(targets, at_once.map(reaches, targets.values())))
found["token"] = os.path.exists("/var/run/secrets/kubernetes.io/serviceaccount/token")
print("FOUND " + json.dumps(found), flush=True)
time.sleep(3600)
"""


def pod(cluster: Cluster, name: str, *command: str, cpu: str = "50m", **metadata: Any) -> dict[str, Any]:
    security = {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}, "runAsNonRoot": True}
    container = {
        "name": "main",
        "image": cluster.image,
        "command": list(command),
        "resources": {"requests": {"cpu": cpu, "memory": "32Mi"}, "limits": {"cpu": "4", "memory": "32Mi"}},
        "securityContext": {**security, "runAsUser": 10001, "seccompProfile": {"type": "RuntimeDefault"}},
    }
    spec = {"containers": [container], "restartPolicy": "Never", "terminationGracePeriodSeconds": 0}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, **metadata}, "spec": spec}


class Portal:
    """The portal with its rights and one of its namespaces."""

    def __init__(self, cluster: Cluster, folder: Path, ingest: tuple[str, int]) -> None:
        self.cluster, self.api = cluster, connect(cluster.kubeconfig_of("portal", folder), 4)
        self.server = api_server(cluster)
        prefix = own_prefix("tests")
        registry, _, port = cluster.registry.rpartition(":")
        # The API server's network, with the API server's port: of its addresses only the API server is unreachable.
        network = ".".join(self.server[0].split(".")[:2]) + ".0.0/16"
        wide = Reach(({"ipBlock": {"cidr": network}},), (self.server[1],))
        self.config = ClusterConfig(
            portal=prefix.rstrip("-"),
            prefix=prefix,
            account=PORTAL,
            reach=(Reach.address(*ingest), Reach.address(registry, int(port)), wide),
            api=(self.server,),
            credentials='{"auths": {}}',
        )
        self.tenants = Tenants(self.api, self.config)
        self.tenant = Tenant("team", {"cpu": 2.0, "memory": GIB, "gpu": 0})
        self.namespace = name_of("team", self.config.prefix)

    def ensure(self, tenant: Tenant) -> None:
        """Create the namespace as the portal does, and wait until the cluster enforces its quota."""
        self.cluster.until("the namespace is as it should be", lambda: self.tenants.ready(tenant))
        self.cluster.until_enforced(manifests.QUOTA, namespace=name_of(tenant.name, self.config.prefix))


def api_server(cluster: Cluster) -> tuple[str, int]:
    (subset,) = cluster.api.call("GET", "/api/v1/namespaces/default/endpoints/kubernetes")["subsets"]
    return str(subset["addresses"][0]["ip"]), int(subset["ports"][0]["port"])


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    found = Cluster()
    found.define()
    with found.with_namespace():
        yield found


@pytest.fixture(scope="module")
def ingest(cluster: Cluster) -> Iterator[tuple[str, int]]:
    """A server on this machine that pods can reach, like the portal's."""
    where = urlsplit(yaml.safe_load(Path(cluster.kubeconfig).read_text())["clusters"][0]["cluster"]["server"])
    with socket.create_connection((str(where.hostname), where.port or 443)) as way:
        address = way.getsockname()[0]
    with socket.create_server((address, 0)) as listening:

        def answer() -> None:
            while True:
                try:
                    listening.accept()[0].close()
                except OSError:
                    return

        threading.Thread(target=answer, daemon=True).start()
        yield address, listening.getsockname()[1]


@pytest.fixture(scope="module")
def portal(cluster: Cluster, ingest: tuple[str, int], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Portal]:
    found = Portal(cluster, tmp_path_factory.mktemp("portal"), ingest)
    found.ensure(found.tenant)
    yield found
    with_all = Tenants(cluster.api, found.config)
    cluster.api.call("DELETE", f"{PODS.path(found.namespace)}", {"gracePeriodSeconds": 0})
    cluster.until("the namespace is removed", lambda: with_all.sweep([], ["team"]).removed)


def started(cluster: Cluster, namespace: str, body: dict[str, Any]) -> str:
    """Return the address of a running pod."""
    path = PODS.path(namespace)
    name = body["metadata"]["name"]
    # The service account of a new namespace is created a moment later.
    cluster.until(f"{name} is made", lambda: _made(cluster.api, path, body))
    cluster.until(f"{name} runs", lambda: cluster.api.call("GET", f"{path}/{name}")["status"]["phase"] == "Running")
    return str(cluster.api.call("GET", f"{path}/{name}")["status"]["podIP"])


def _made(api: KubeApi, path: str, body: dict[str, Any]) -> bool:
    try:
        api.call("POST", path, body)
    except Refusal as refusal:
        assert "serviceaccount" in refusal.message, refusal
        return False
    return True


def probed(
    cluster: Cluster, namespace: str, *, opened: Mapping[str, str], closed: Mapping[str, str] = MappingProxyType({})
) -> dict[str, bool]:
    """Return which addresses a pod of the namespace reaches: of those that are open, and those that are closed."""
    name = f"probe-{uuid.uuid4().hex[:6]}"
    targets = {key: (target, OPEN_SECONDS) for key, target in opened.items()}
    targets |= {key: (target, CLOSED_SECONDS) for key, target in closed.items()}
    started(cluster, namespace, pod(cluster, name, "python3", "-c", PROBE, json.dumps(targets)))
    lines: list[str] = []

    def has_reported() -> bool:
        lines[:] = cluster.kubectl("-n", namespace, "logs", name, everywhere=True).splitlines()
        return any(line.startswith("FOUND ") for line in lines)

    cluster.until(f"{name} has looked", has_reported)
    found: dict[str, bool] = json.loads(lines[-1].removeprefix("FOUND "))
    return found


# --- Network policies ------------------------------------------------------------------------------------------------
@pytest.mark.invariant(
    "Pods reach the pods of their namespace, the DNS and the addresses in the settings, and nothing else."
)
def test_a_pod_reaches_its_own_kind_the_dns_and_the_platform_and_nothing_else(
    cluster: Cluster, portal: Portal, ingest: tuple[str, int]
) -> None:
    own = started(cluster, portal.namespace, pod(cluster, "own", "python3", "-c", LISTEN))
    stranger = started(cluster, cluster.namespace, pod(cluster, "stranger", "python3", "-c", LISTEN))
    inside = {
        "own": f"{own}:8080",
        "dns": "dns:kubernetes.default.svc.cluster.local",
        "ingest": f"{ingest[0]}:{ingest[1]}",
        "registry": cluster.registry,
    }
    outside = {
        "stranger": f"{stranger}:8080",
        "api": "{}:{}".format(*portal.server),
        "api by its service": "kubernetes.default.svc.cluster.local:443",
    }
    # A pod outside the policies reaches it: otherwise this test could not fail.
    free = probed(cluster, cluster.namespace, opened={**outside, "ingest": inside["ingest"]})
    assert free == dict.fromkeys((*outside, "ingest", "token"), True)
    found = probed(cluster, portal.namespace, opened=inside, closed={**outside, "metadata": "169.254.169.254:80"})
    assert found == {
        **dict.fromkeys(inside, True),
        **dict.fromkeys(outside, False),
        "metadata": False,
        "token": False,
    }
    assert probed(cluster, cluster.namespace, opened={}, closed={"own": inside["own"]})["own"] is False


def test_pods_pull_images_with_the_credentials_of_the_namespace(cluster: Cluster, portal: Portal) -> None:
    """No pod names the Secret: the API server adds those of the service account."""

    def secrets() -> Any:
        body, query = pod(cluster, "pulls", "true"), {"dryRun": "All"}
        return cluster.api.call("POST", PODS.path(portal.namespace), body, query=query)["spec"].get("imagePullSecrets")

    cluster.until("a pod has the Secret", lambda: secrets() == [{"name": manifests.PULL_SECRET}])


# --- The quota -------------------------------------------------------------------------------------------------------
def test_what_is_beyond_the_quota_the_cluster_refuses(cluster: Cluster, portal: Portal) -> None:
    with pytest.raises(Refusal, match="exceeded quota: regatta-quota"):
        cluster.api.call("POST", PODS.path(portal.namespace), pod(cluster, "greedy", "true", cpu="3"))
    several = pod(cluster, "several", "true", cpu="1500m")
    second = json.loads(json.dumps(several["spec"]["containers"][0])) | {"name": "second"}
    several["spec"]["containers"].append(second)
    with pytest.raises(Refusal, match="exceeded quota: regatta-quota"):
        cluster.api.call("POST", PODS.path(portal.namespace), several)


# --- Rights ----------------------------------------------------------------------------------------------------------
@pytest.mark.invariant("The portal's account on the cluster reads no secret and creates no pod.")
def test_the_portal_reads_no_secret_and_makes_no_pod_anywhere(cluster: Cluster, portal: Portal) -> None:
    for namespace in ("kube-system", cluster.namespace, portal.namespace, SYSTEM):
        for path in (f"/api/v1/namespaces/{namespace}/secrets", f"/api/v1/namespaces/{namespace}/secrets/x"):
            with pytest.raises(Refusal) as refused:
                portal.api.call("GET", path)
            assert refused.value.status == 403
        with pytest.raises(Refusal) as refused:
            portal.api.call("POST", PODS.path(namespace), pod(cluster, "mine", "true"))
        assert refused.value.status == 403


@pytest.mark.invariant("The portal's account does nothing in namespaces of others.")
def test_in_a_namespace_that_is_not_its_own_the_portal_does_nothing(cluster: Cluster, portal: Portal) -> None:
    for path in (JOBS.path(cluster.namespace), JOBS.path(), EVENTS.path(cluster.namespace)):
        with pytest.raises(Refusal) as refused:
            portal.api.call("GET", path)
        assert refused.value.status == 403
    for path in (PODS.path(cluster.namespace, "any"), NODES.path(name="node1")):
        with pytest.raises(Refusal) as refused:
            portal.api.call("DELETE", path)
        assert refused.value.status == 403


def test_the_portal_sees_the_nodes_and_pods_of_the_cluster(cluster: Cluster, portal: Portal) -> None:
    survey = ClusterWatch(portal.api)
    sighting = survey.look()
    assert sighting is not None, survey.forbidden
    assert min(node.allocatable.cpu for node in sighting.nodes) > 0
    cluster.until("it follows what happens", survey.follow)
    started(cluster, cluster.namespace, pod(cluster, "watched", "sleep", "3600"))
    cluster.until("it has heard of the pod", lambda: _sees(survey, cluster.namespace, "watched"))
    survey.end()


def _sees(survey: ClusterWatch, namespace: str, name: str) -> bool:
    sighting = survey.follow()
    return sighting is not None and any(
        (one.namespace, one.name, one.needs.cpu, bool(one.node)) == (namespace, name, 50, True) for one in sighting.pods
    )


def test_the_portal_grants_itself_no_other_role(cluster: Cluster, portal: Portal) -> None:
    (binding,) = [b for b in manifests.objects(portal.tenant, portal.config) if b["kind"] == "RoleBinding"]
    body = json.loads(json.dumps(binding)) | {"roleRef": {**binding["roleRef"], "name": "cluster-admin"}}
    body["metadata"]["name"] = "more"
    path = f"/apis/rbac.authorization.k8s.io/v1/namespaces/{portal.namespace}/rolebindings"
    with pytest.raises(Refusal) as refused:
        portal.api.call("POST", path, body)
    assert refused.value.status == 403


# --- Synchronisation -------------------------------------------------------------------------------------------------
def test_what_somebody_changed_is_as_it_was_after_a_pass(cluster: Cluster, portal: Portal) -> None:
    quota = f"/api/v1/namespaces/{portal.namespace}/resourcequotas/{manifests.QUOTA}"
    wall = f"/apis/networking.k8s.io/v1/namespaces/{portal.namespace}/networkpolicies/{manifests.DENY}"
    own = f"/apis/networking.k8s.io/v1/namespaces/{portal.namespace}/networkpolicies/{manifests.ALLOW_OWN}"
    cluster.api.call("PATCH", quota, {"spec": {"hard": {"requests.cpu": "100"}}})
    # The cluster writes the status of a changed quota, and would write it in the middle of the pass.
    cluster.until("the quota is in force", lambda: enforced(cluster, quota).get("requests.cpu") == "100")
    cluster.api.call("PATCH", wall, {"spec": {"egress": [{}]}})
    cluster.api.call("DELETE", own)
    done = portal.tenants.sweep([portal.tenant], [])
    assert done.problems == {}
    assert done.written == 4  # those three, and the secret
    assert cluster.api.call("GET", quota)["spec"]["hard"]["requests.cpu"] == "2"
    assert "egress" not in cluster.api.call("GET", wall)["spec"]
    assert cluster.api.call("GET", own)
    assert portal.tenants.sweep([portal.tenant], []).written == 1


def enforced(cluster: Cluster, quota: str) -> Mapping[str, str]:
    limits: Mapping[str, str] = cluster.api.call("GET", quota).get("status", {}).get("hard", {})
    return limits


def test_a_closed_namespace_goes_with_the_jobs_that_run_in_it(cluster: Cluster, portal: Portal) -> None:
    closing = Tenant("closing", {"cpu": 1.0, "memory": GIB})
    name = name_of("closing", portal.config.prefix)
    portal.ensure(closing)
    template = {"spec": pod(cluster, "x", "sleep", "3600")["spec"]}
    job = {"apiVersion": names.API_VERSION, "kind": names.KIND, "metadata": {"name": "long"}}
    job["spec"] = {"worker": {"replicas": 1, "template": template}, "runPolicy": {"managedBy": "tests"}}
    made = portal.api.call("POST", JOBS.path(name), job)
    owner = {"apiVersion": names.API_VERSION, "kind": names.KIND, "name": "long", "uid": names.uid_of(made)}
    owned = [{**owner, "controller": True, "blockOwnerDeletion": True}]
    started(cluster, name, pod(cluster, "long-worker-0", "sleep", "3600", ownerReferences=owned))
    done = portal.tenants.sweep([portal.tenant], ["closing"])
    assert done.removed == 0
    assert cluster.api.call("GET", f"/api/v1/namespaces/{name}")["status"]["phase"] == "Active"
    cluster.until("the namespace is removed", lambda: portal.tenants.sweep([portal.tenant], ["closing"]).removed)
    path = f"/api/v1/namespaces/{name}"
    cluster.until("the namespace is gone", lambda: not cluster.is_there(path))
