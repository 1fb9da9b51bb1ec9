"""The manifests in ``deploy/kubernetes``, checked as a whole."""

from __future__ import annotations

import ast
import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from jobs.operator.tenants import namespace_manifests as manifests
from runtime.coordination.etcd_address import EtcdAddress
from runtime.coordination.etcd_probe import PATCHED
from runtime.coordination.gateway.settings import Settings

ROOT = Path(__file__).parents[3]
FOLDER = ROOT / "deploy" / "kubernetes"
_WHOLE = yaml.safe_load((FOLDER / "kustomization.yaml").read_text())


def objects() -> list[dict[str, Any]]:
    """Return every object of the kustomization."""
    return [body for name in _WHOLE["resources"] for body in yaml.safe_load_all((FOLDER / name).read_text()) if body]


def of(*kinds: str) -> list[dict[str, Any]]:
    return [body for body in objects() if body["kind"] in kinds]


def named(body: dict[str, Any]) -> str:
    return str(body["metadata"]["name"])


WORKLOADS = of("Deployment", "StatefulSet")
each_workload = pytest.mark.parametrize("workload", WORKLOADS, ids=named)


def given_settings() -> dict[str, str]:
    """Return the settings of the ConfigMap."""
    (found,) = of("ConfigMap")
    return dict(found["data"])


def containers(workload: dict[str, Any]) -> Iterator[dict[str, Any]]:
    pod = workload["spec"]["template"]["spec"]
    yield from (*pod.get("initContainers", ()), *pod["containers"])


def test_every_file_of_the_directory_is_in_the_kustomization() -> None:
    files = {path.name for path in FOLDER.glob("*.yaml")} - {"kustomization.yaml"}
    assert files == set(_WHOLE["resources"])


def test_no_object_is_there_twice() -> None:
    keys = [(body["kind"], body["metadata"].get("namespace"), named(body)) for body in objects()]
    assert len(keys) == len(set(keys))


def test_every_namespaced_object_names_its_namespace() -> None:
    alone = {"Namespace", "ClusterRole", "ClusterRoleBinding", "CustomResourceDefinition"}
    places = {body["metadata"].get("namespace") for body in objects() if body["kind"] not in alone}
    assert places <= {"regatta-system", "regatta-builds", "default"}


# --- Pods ------------------------------------------------------------------------------------------------------------
@each_workload
def test_no_process_of_the_platform_may_more_than_it_needs(workload: dict[str, Any]) -> None:
    pod = workload["spec"]["template"]["spec"]
    assert pod["securityContext"]["runAsNonRoot"] is True
    assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    for container in containers(workload):
        security = container["securityContext"]
        assert security["allowPrivilegeEscalation"] is False
        assert security["readOnlyRootFilesystem"] is True
        assert security["capabilities"] == {"drop": ["ALL"]}


@each_workload
def test_every_container_has_requests_and_limits(workload: dict[str, Any]) -> None:
    for container in containers(workload):
        for kind in ("requests", "limits"):
            assert set(container["resources"][kind]) == {"cpu", "memory"}


@each_workload
def test_a_pod_without_a_cluster_account_has_no_token(workload: dict[str, Any]) -> None:
    pod = workload["spec"]["template"]["spec"]
    assert ("serviceAccountName" in pod) != (pod.get("automountServiceAccountToken") is False)


@each_workload
def test_every_server_with_a_port_has_a_probe(workload: dict[str, Any]) -> None:
    for container in workload["spec"]["template"]["spec"]["containers"]:
        if container.get("ports"):
            assert {"livenessProbe", "readinessProbe"} <= container.keys()


def test_a_web_pod_that_ends_answers_until_the_ingress_has_taken_it_out() -> None:
    (web,) = [workload for workload in WORKLOADS if named(workload) == "portal-web"]
    pod = web["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    program, option, script = container["lifecycle"]["preStop"]["exec"]["command"]
    paused = re.fullmatch(r"import time; time\.sleep\((\d+)\)", script)
    assert (program, option) == ("python3", "-c")
    assert paused is not None
    # Both are within the grace of the pod: the pause, and what the server needs to end.
    assert 5 <= int(paused[1]) <= pod["terminationGracePeriodSeconds"] - 10


@each_workload
def test_a_drained_node_takes_one_of_each_at_most(workload: dict[str, Any]) -> None:
    labels = workload["spec"]["template"]["metadata"]["labels"]
    chosen = [
        body for body in of("PodDisruptionBudget") if body["spec"]["selector"]["matchLabels"].items() <= labels.items()
    ]
    assert len(chosen) == 1


@each_workload
def test_a_workload_chooses_its_own_pods(workload: dict[str, Any]) -> None:
    labels = workload["spec"]["template"]["metadata"]["labels"]
    assert workload["spec"]["selector"]["matchLabels"].items() <= labels.items()


# --- Network policies ------------------------------------------------------------------------------------------------
def test_every_service_leads_to_pods_with_its_ports() -> None:
    for service in of("Service"):
        selector = service["spec"]["selector"]
        (workload,) = [w for w in WORKLOADS if selector.items() <= w["spec"]["template"]["metadata"]["labels"].items()]
        ports = {port["name"] for container in containers(workload) for port in container.get("ports", ())}
        assert {port["targetPort"] for port in service["spec"]["ports"]} <= ports


@pytest.mark.invariant("Pods of jobs do not reach etcd: only the portal and the coordination gateway do.")
def test_the_servers_are_reached_by_the_portal_and_by_jobs_only_through_the_coordination_gateway() -> None:
    policies = {named(body): body["spec"] for body in of("NetworkPolicy")}
    assert policies["deny-all-in"] == {"podSelector": {}, "policyTypes": ["Ingress"]}
    portal = {"podSelector": {"matchLabels": {"app.kubernetes.io/part-of": "portal"}}}
    for server in ("postgresql", "redis"):
        assert [rule["from"] for rule in policies[server]["ingress"]] == [[portal]]
        assert "egress" not in policies[server]
    tenants = {"namespaceSelector": {"matchLabels": {manifests.MANAGED_LABEL: manifests.MANAGER}}}
    gateway = {"podSelector": {"matchLabels": {"app.kubernetes.io/name": "coordination-gateway"}}}
    client = [{"protocol": "TCP", "port": 2379}]
    assert policies["etcd"]["ingress"][0] == {"from": [portal, gateway], "ports": client}
    assert policies["coordination-gateway"]["ingress"] == [{"from": [tenants], "ports": client}]


def test_jobs_get_the_address_of_the_gateway_and_the_gateway_that_of_etcd_without_an_account() -> None:
    address = EtcdAddress.parse(given_settings()["REGATTA_COORDINATION_JOBS"])
    services = [
        f"{named(body)}.{body['metadata']['namespace']}:{body['spec']['ports'][0]['port']}" for body in of("Service")
    ]
    assert set(address.servers) <= set(services)
    (workload,) = [body for body in WORKLOADS if named(body) == "coordination-gateway"]
    (container,) = containers(workload)
    portal, servers = (item["stringData"] for item in made_secrets()["items"])
    given = {
        one["name"]: one.get("value") or servers[one["valueFrom"]["secretKeyRef"]["key"]] for one in container["env"]
    }
    site = EtcdAddress.parse(portal["REGATTA_COORDINATION"])
    assert Settings.read(given).site == site.with_account("", "")


@pytest.mark.invariant("The manifests use an etcd without the known holes.")
@pytest.mark.parametrize("name", ["kubernetes/servers.yaml", "compose.yaml"])
def test_etcd_is_a_patched_version(name: str) -> None:
    (version,) = re.findall(r"image: quay\.io/coreos/etcd:v([0-9.]+)", (ROOT / "deploy" / name).read_text())
    least = re.search(r"[0-9.]+[0-9]", PATCHED)
    assert least
    numbers = [[int(part) for part in text.split(".")] for text in (version, least[0])]
    assert numbers[0] >= numbers[1]


def test_the_world_does_not_reach_the_ingest() -> None:
    (ingress,) = of("Ingress")
    paths = {path["path"]: path["backend"]["service"]["name"] for path in ingress["spec"]["rules"][0]["http"]["paths"]}
    assert paths == {"/": "portal"}
    (portal,) = [body for body in of("Service") if named(body) == "portal"]
    assert [port["port"] for port in portal["spec"]["ports"]] == [8000]
    assert given_settings()["REGATTA_AGENT_PORT"] != "8000"


@pytest.mark.invariant("Pods of jobs reach the portal on the agents' port alone.")
def test_people_come_by_the_ingress_controller_and_agents_on_their_own_port() -> None:
    policies = {named(body): body["spec"] for body in of("NetworkPolicy")}
    ingress = {"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "ingress-nginx"}}}
    tenants = {"namespaceSelector": {"matchLabels": {manifests.MANAGED_LABEL: manifests.MANAGER}}}
    admitted = {port["port"]: rule["from"] for rule in policies["portal-web"]["ingress"] for port in rule["ports"]}
    assert (admitted[8000], admitted[8001]) == ([ingress], [tenants])


def test_agents_are_sent_to_the_service_of_their_port() -> None:
    given = given_settings()
    (agents,) = [body for body in of("Service") if named(body) == "portal-agents"]
    (port,) = agents["spec"]["ports"]
    (web,) = [workload for workload in WORKLOADS if named(workload) == "portal-web"]
    ports = {each["name"]: each["containerPort"] for c in containers(web) for each in c.get("ports", ())}
    assert given["REGATTA_INGEST_URL"] == f"http://portal-agents.regatta-system:{port['port']}"
    assert str(ports[port["targetPort"]]) == given["REGATTA_AGENT_PORT"]
    reach = json.loads(given["REGATTA_KUBERNETES_REACH"])
    reached = [rule["ports"] for rule in reach if "portal-web" in json.dumps(rule)]
    assert reached == [[ports[port["targetPort"]]]]


def test_no_proxy_is_trusted_before_the_operator_names_it() -> None:
    assert "REGATTA_TRUSTED_PROXIES" not in given_settings()


# --- Settings --------------------------------------------------------------------------------------------------------
def made_secrets() -> dict[str, Any]:
    made: dict[str, Any] = json.loads(subprocess.check_output([sys.executable, "deploy/make_secrets.py"], cwd=ROOT))
    return made


def known_settings() -> set[str]:
    texts = [(ROOT / "portal" / name).read_text() for name in ("settings.py", "env.py", "management/commands/up.py")]
    nodes = [node for text in texts for node in ast.walk(ast.parse(text))]
    values = {node.value for node in nodes if isinstance(node, ast.Constant) and isinstance(node.value, str)}
    return {value for value in values if re.fullmatch(r"REGATTA_[A-Z0-9_]+|PORT", value)}


def test_the_portal_reads_every_setting_of_the_manifests() -> None:
    (portal,) = [item for item in made_secrets()["items"] if named(item) == "portal"]
    compose = yaml.safe_load((ROOT / "deploy" / "compose.yaml").read_text())["services"]["portal"]["environment"]
    given = {*given_settings(), *portal["stringData"], *compose}
    assert given - known_settings() == set()


@pytest.mark.invariant("The portal starts with the settings in its manifests.")
def test_the_portal_starts_with_the_settings_of_the_manifests(tmp_path: Path) -> None:
    (portal,) = [item for item in made_secrets()["items"] if named(item) == "portal"]
    given = {**given_settings(), **portal["stringData"], "REGATTA_DATA_DIR": str(tmp_path)}
    del given["REGATTA_DATABASE_URL"]  # no server listens there
    inherited = {name: value for name, value in os.environ.items() if not name.startswith(("REGATTA_", "DJANGO_"))}
    command = [sys.executable, "manage.py", "check", "--deploy", "--fail-level", "ERROR"]
    done = subprocess.run(
        command, cwd=ROOT, env=inherited | given, capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stderr


def test_pods_may_reach_the_addresses_of_the_settings() -> None:
    rules = json.loads(given_settings()["REGATTA_KUBERNETES_REACH"])
    for rule in rules:
        (peer,) = rule["to"]
        labels = peer["podSelector"]["matchLabels"]
        (workload,) = [w for w in WORKLOADS if labels.items() <= w["spec"]["template"]["metadata"]["labels"].items()]
        ports = {port["containerPort"] for container in containers(workload) for port in container.get("ports", ())}
        assert set(rule["ports"]) <= ports


def test_secrets_are_others_each_time_and_agree_with_each_other() -> None:
    one, other = (
        json.loads(subprocess.check_output([sys.executable, "deploy/make_secrets.py"], cwd=ROOT)) for _ in "12"
    )
    portal, servers = (item["stringData"] for item in one["items"])
    assert servers["POSTGRES_PASSWORD"] in portal["REGATTA_DATABASE_URL"]
    assert servers["REDIS_PASSWORD"] in portal["REGATTA_BROKER_URL"]
    assert servers["ETCD_PASSWORD"] in portal["REGATTA_COORDINATION"]
    assert not set(servers.values()) & set(other["items"][1]["stringData"].values())


# --- On a cluster ----------------------------------------------------------------------------------------------------
@pytest.mark.invariant("A cluster accepts all manifests of the platform.")
@pytest.mark.kube
@pytest.mark.timeout(120)
def test_a_cluster_takes_all_of_it() -> None:
    """A server-side dry run. Clusters before 1.21 have disruption budgets under an earlier name."""
    kubectl = [os.environ.get("KUBECTL", "kubectl"), "--kubeconfig", os.environ["KUBECONFIG"]]
    subprocess.run(
        [*kubectl, "apply", "-f", str(FOLDER / "namespace.yaml"), "-f", str(FOLDER / "builds.yaml")], check=True
    )
    whole = subprocess.check_output([os.environ.get("KUBECTL", "kubectl"), "kustomize", str(FOLDER)], text=True)
    version = json.loads(subprocess.check_output([*kubectl, "version", "-o", "json"], text=True))["serverVersion"]
    if int(re.sub(r"\D", "", version["minor"])) < 21:
        whole = whole.replace("apiVersion: policy/v1\n", "apiVersion: policy/v1beta1\n")
    done = subprocess.run(
        [*kubectl, "apply", "--dry-run=server", "-f", "-"], input=whole, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr


def test_redis_refuses_writes_before_it_reaches_its_memory_limit_and_removes_no_hint() -> None:
    redis = next(body for body in of("Deployment") if named(body) == "redis")
    (container,) = redis["spec"]["template"]["spec"]["containers"]
    compose = yaml.safe_load((ROOT / "deploy" / "compose.yaml").read_text())["services"]["redis"]
    limit = int(container["resources"]["limits"]["memory"].removesuffix("Mi"))
    for command in (container["command"], compose["command"]):
        options = dict(zip(command[1::2], command[2::2], strict=True))
        assert options["--maxmemory-policy"] == "noeviction"
        # A quarter is for connections, and for memory that is not given back.
        assert int(options["--maxmemory"].removesuffix("mb")) <= limit * 3 / 4
