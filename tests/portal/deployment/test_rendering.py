"""What each value changes in the manifests of an installation."""

from __future__ import annotations

import copy
import json
from typing import Any

import pytest
from django.conf import settings

from portal.deployment.fields import BY_PATH
from portal.deployment.objects import MissingObject, Object, Objects, containers_of, dump, load, name_of, pod_of
from portal.deployment.render import rendered
from portal.deployment.transformations.environment import CHECKSUM
from tests.portal.deployment.installations import (
    EXTERNAL,
    FILES,
    KNOWN,
    SAMPLES,
    Given,
    installation,
    one,
    portal_workloads,
    settings_of,
    values_file,
    workloads,
)
from tests.portal.deployment.structure import problems

STATELESS = ("portal-web", "portal-worker", "portal-sweep", "coordination-gateway", "paddlejob-controller")


def without_checksum(objects: Objects) -> dict[tuple[str, str | None, str], Object]:
    """Return copies of the objects by kind, namespace and name, without the checksum of settings."""
    found = {}
    for body in map(copy.deepcopy, objects):
        template = body.get("spec", {}).get("template", {}).get("metadata", {})
        if template.get("annotations", {}).pop(CHECKSUM, None) and not template["annotations"]:
            del template["annotations"]
        found[(body["kind"], body["metadata"].get("namespace"), name_of(body))] = body
    return found


def container(objects: Objects, kind: str, name: str) -> dict[str, Any]:
    (found,) = one(objects, kind, name)["spec"]["template"]["spec"]["containers"]
    return dict(found)


# --- The whole -------------------------------------------------------------------------------------------------------
@pytest.mark.invariant("The default values render the manifests in deploy/kubernetes.")
def test_default_values_render_the_manifests_as_they_are() -> None:
    assert without_checksum(installation()) == without_checksum(load(FILES))


@pytest.mark.parametrize("path", BY_PATH)
def test_every_value_has_an_effect(path: str) -> None:
    value, others = SAMPLES[path]
    if path == "etcd.enabled":
        assert without_checksum(installation(others)) != without_checksum(installation())
        return
    # Some values need others; where these have the same value of the path, it is compared with its default.
    is_other = others.get(path, value) == value
    before = {name: other for name, other in others.items() if name != path} if is_other else others
    assert without_checksum(installation({**before, path: value})) != without_checksum(installation(before))


SITES: dict[str, tuple[Given, set[str], set[str]]] = {
    "defaults": ({}, set(), set()),
    "external": (EXTERNAL, {"database", "queue", "coordination"}, set()),
    "no-registry-credentials": ({"registry.existingSecret": "", "image.pullSecrets": []}, set(), set()),
    "existing-claim": ({"persistence.existingClaim": "site-data"}, set(), {"site-data"}),
    "bucket": ({"s3.bucket": "regatta", "s3.existingSecret": "bucket"}, {"bucket"}, set()),
    "checkpoints": ({"checkpoints.nfs.server": "10.0.0.5"}, set(), set()),
    "autoscaling": ({"web.autoscaling.enabled": True}, set(), set()),
    "mail-and-oidc": ({"mail.existingSecret": "mail", "extraSecrets": ["oidc"]}, {"mail", "oidc"}, set()),
    "no-ingress": ({"ingress.enabled": False}, set(), set()),
    "two-hosts": ({"ingress.hosts": ["a.site.org", "b.site.org"]}, set(), set()),
}


@pytest.mark.invariant("References between rendered objects have targets.")
@pytest.mark.parametrize("site", SITES)
def test_rendered_objects_are_valid_and_their_references_exist(site: str) -> None:
    given, secrets, claims = SITES[site]
    assert list(problems(installation(given), secrets | {"portal", "servers", "registry"}, claims)) == []


def test_rendering_twice_gives_the_same_text() -> None:
    given = values_file(
        {
            path: value
            for path, (value, others) in SAMPLES.items()
            if not others and "enabled" not in path and path not in ("checkpoints.volume", "persistence.existingClaim")
        }
    )
    assert rendered(FILES, given, KNOWN).text == rendered(FILES, given, KNOWN).text


def test_the_text_is_the_objects_in_the_order_to_apply_them() -> None:
    found = rendered(FILES, "", KNOWN)
    assert load([found.text]) == found.objects
    kinds = list(dict.fromkeys(body["kind"] for body in found.objects))
    assert kinds[:3] == ["Namespace", "CustomResourceDefinition", "ServiceAccount"]
    last = ["NetworkPolicy", "ConfigMap", "PersistentVolumeClaim", "Service", "StatefulSet", "Deployment"]
    assert [kind for kind in kinds if kind in last] == last
    assert kinds[-1] == "Ingress"


def test_the_text_has_no_aliases() -> None:
    assert "&id" not in dump(installation({"tolerations": [{"key": "a", "operator": "Exists"}]}))


def test_manifests_without_an_object_that_a_value_changes_are_an_error() -> None:
    with pytest.raises(MissingObject):
        rendered([text for text in FILES if "kind: Ingress" not in text], "", KNOWN)


# --- Images ----------------------------------------------------------------------------------------------------------
def test_no_image_of_the_examples_is_left_in_an_installation() -> None:
    given = {"image.registry": "registry.site.org", "registry.address": "registry.site.org/jobs"}
    given |= {f"{server}.image.registry": "mirror.site.org" for server in ("postgresql", "redis", "etcd")}
    objects = installation(given)
    found = {each["image"].partition("/")[0] for workload in workloads(objects) for each in containers_of(workload)}
    assert found == {"registry.site.org", "mirror.site.org"}


@pytest.mark.invariant("Build pods use the image of the portal that runs.")
def test_build_pods_have_the_portal_s_image() -> None:
    objects = installation({"image.registry": "registry.site.org", "image.tag": "2.0.0"})
    image = container(objects, "Deployment", "portal-web")["image"]
    assert image == "registry.site.org/regatta/portal:2.0.0"
    assert settings_of(objects)["REGATTA_BUILD_TOOLS_IMAGE"] == image
    assert container(objects, "Deployment", "coordination-gateway")["image"] == image


def test_the_controller_s_image_has_the_portal_s_registry_and_tag_by_default() -> None:
    objects = installation({"image.registry": "registry.site.org", "image.tag": "2.0.0"})
    image = container(objects, "Deployment", "paddlejob-controller")["image"]
    assert image == "registry.site.org/regatta/controller:2.0.0"


@pytest.mark.invariant("Every pod and service account of the platform has the pull secrets.")
@pytest.mark.parametrize("given", [{}, {"image.pullSecrets": ["harbor"]}], ids=["defaults", "given"])
def test_every_pod_and_account_has_the_pull_secrets(given: Given) -> None:
    objects = installation(given)
    expected = [{"name": name} for name in given.get("image.pullSecrets", ["registry"])]
    assert all(pod_of(workload)["imagePullSecrets"] == expected for workload in workloads(objects))
    accounts = [body for body in objects if body["kind"] == "ServiceAccount"]
    assert {name_of(body): body["imagePullSecrets"] for body in accounts if _in_system(body)} == dict.fromkeys(
        ("portal", "paddlejob-controller", "default"), expected
    )


def _in_system(body: Object) -> bool:
    return bool(body["metadata"]["namespace"] == "regatta-system")


# --- Nodes -----------------------------------------------------------------------------------------------------------
@pytest.mark.invariant("Replicas of the platform spread over nodes, and leave a dead node after 30 seconds.")
@pytest.mark.parametrize("name", STATELESS)
def test_replicas_spread_over_nodes_and_leave_a_dead_one_soon(name: str) -> None:
    workload = one(installation(), "Deployment", name)
    (spread,) = pod_of(workload)["topologySpreadConstraints"]
    assert (spread["maxSkew"], spread["whenUnsatisfiable"]) == (1, "ScheduleAnyway")
    assert spread["labelSelector"] == workload["spec"]["selector"]
    seconds = {item["key"]: item["tolerationSeconds"] for item in pod_of(workload)["tolerations"]}
    assert seconds == {"node.kubernetes.io/not-ready": 30, "node.kubernetes.io/unreachable": 30}


@pytest.mark.parametrize("name", ["postgresql", "etcd"])
def test_servers_with_a_volume_wait_for_their_node(name: str) -> None:
    assert "tolerations" not in pod_of(one(installation(), "StatefulSet", name))


def test_placement_is_that_of_all_pods_and_adds_to_their_own() -> None:
    toleration = {"key": "platform", "operator": "Exists"}
    node_affinity = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": []}}
    given = {"nodeSelector": {"role": "a"}, "tolerations": [toleration], "affinity": {"nodeAffinity": node_affinity}}
    objects = installation(given)
    for workload in workloads(objects):
        assert pod_of(workload)["nodeSelector"] == {"role": "a"}
        assert pod_of(workload)["tolerations"][-1] == toleration
        assert pod_of(workload)["affinity"]["nodeAffinity"] == node_affinity
    web = pod_of(one(objects, "Deployment", "portal-web"))
    assert len(web["tolerations"]) == 3
    assert "podAntiAffinity" in web["affinity"]


def test_jobs_have_a_placement_of_their_own() -> None:
    given = {"jobs.nodeSelector": {"training": "yes"}, "jobs.tolerations": [{"key": "t", "operator": "Exists"}]}
    objects = installation(given)
    assert json.loads(settings_of(objects)["REGATTA_KUBERNETES_PLACEMENT"]) == {
        "nodeSelector": {"training": "yes"},
        "tolerations": [{"key": "t", "operator": "Exists"}],
    }
    assert all("nodeSelector" not in pod_of(workload) for workload in workloads(objects))


# --- Processes -------------------------------------------------------------------------------------------------------
def test_the_init_container_has_the_resources_of_its_process() -> None:
    objects = installation({"sweep.resources.requests.memory": "512Mi"})
    found = [
        each["resources"]["requests"]["memory"] for each in containers_of(one(objects, "Deployment", "portal-sweep"))
    ]
    assert found == ["512Mi", "512Mi"]


def test_an_autoscaled_deployment_states_no_replicas() -> None:
    objects = installation({"web.autoscaling.enabled": True, "web.autoscaling.maxReplicas": 8})
    assert "replicas" not in one(objects, "Deployment", "portal-web")["spec"]
    scaler = one(objects, "HorizontalPodAutoscaler", "portal-web")
    assert scaler["apiVersion"] == "autoscaling/v1"
    assert (scaler["spec"]["minReplicas"], scaler["spec"]["maxReplicas"]) == (2, 8)


@pytest.mark.parametrize(("version", "api"), [("1.20", "policy/v1beta1"), ("1.21", "policy/v1"), ("1.34", "policy/v1")])
def test_disruption_budgets_have_the_api_version_of_the_cluster(version: str, api: str) -> None:
    budgets = [body for body in installation({"kubeVersion": version}) if body["kind"] == "PodDisruptionBudget"]
    assert {body["apiVersion"] for body in budgets} == {api}


# --- Access ----------------------------------------------------------------------------------------------------------
def test_host_names_are_those_of_ingress_certificate_and_portal() -> None:
    objects = installation({"ingress.hosts": ["a.site.org", "b.site.org"]})
    spec = one(objects, "Ingress", "portal")["spec"]
    assert [rule["host"] for rule in spec["rules"]] == ["a.site.org", "b.site.org"]
    assert spec["tls"] == [{"hosts": ["a.site.org", "b.site.org"], "secretName": "portal-tls"}]
    assert settings_of(objects)["REGATTA_ALLOWED_HOSTS"] == "a.site.org,b.site.org,portal.regatta-system"


def test_annotations_of_the_ingress_add_to_those_of_the_manifest() -> None:
    before = one(installation(), "Ingress", "portal")["metadata"]["annotations"]
    given = {"ingress.annotations": {"nginx.ingress.kubernetes.io/proxy-body-size": "1g", "a": "b"}}
    found = one(installation(given), "Ingress", "portal")["metadata"]["annotations"]
    assert found == {**before, "nginx.ingress.kubernetes.io/proxy-body-size": "1g", "a": "b"}


def test_the_policy_admits_the_namespace_of_the_ingress_controller_and_still_jobs_to_their_port() -> None:
    rules = one(installation({"ingress.controllerNamespace": "edge"}), "NetworkPolicy", "portal-web")["spec"]["ingress"]
    admitted = {port["port"]: rule["from"][0]["namespaceSelector"] for rule in rules for port in rule["ports"]}
    assert admitted[8000] == {"matchLabels": {"kubernetes.io/metadata.name": "edge"}}
    assert admitted[8001] == {"matchLabels": {"app.kubernetes.io/managed-by": "regatta"}}


def test_the_policy_admits_the_namespace_of_prometheus() -> None:
    policy = one(installation({"metrics.namespace": "observability"}), "NetworkPolicy", "monitoring")
    (peer,) = policy["spec"]["ingress"][0]["from"]
    assert peer["namespaceSelector"]["matchLabels"] == {"kubernetes.io/metadata.name": "observability"}


# --- Secrets and settings --------------------------------------------------------------------------------------------
def test_a_registry_without_credentials_needs_no_secret() -> None:
    objects = installation({"registry.existingSecret": "", "image.pullSecrets": []})
    assert "registry" not in json.dumps([pod_of(workload)["volumes"] for workload in portal_workloads(objects)])
    names = {"REGATTA_REGISTRY_CREDENTIALS", "REGATTA_KUBERNETES_PULL_CREDENTIALS", "REGATTA_BUILD_SECRET"}
    assert not names & settings_of(objects).keys()


def test_a_registry_s_secret_is_mounted_and_named_for_builds() -> None:
    objects = installation({"registry.existingSecret": "harbor"})
    assert settings_of(objects)["REGATTA_BUILD_SECRET"] == "harbor"
    for workload in portal_workloads(objects):
        (found,) = [volume for volume in pod_of(workload)["volumes"] if volume["name"] == "registry"]
        assert found["secret"]["secretName"] == "harbor"


def variables(objects: Objects, workload: str) -> dict[str, tuple[str, str]]:
    """Return Secret and key of the variables of the last container that come from Secrets."""
    *_, found = containers_of(one(objects, "Deployment", workload))
    references = {each["name"]: each["valueFrom"]["secretKeyRef"] for each in found.get("env", ())}
    return {name: (reference["name"], reference["key"]) for name, reference in references.items()}


@pytest.mark.parametrize("name", ["portal-web", "portal-worker", "portal-sweep"])
def test_addresses_of_external_servers_come_from_their_secrets(name: str) -> None:
    assert variables(installation(EXTERNAL), name) == {
        "REGATTA_DATABASE_URL": ("database", "REGATTA_DATABASE_URL"),
        "REGATTA_BROKER_URL": ("queue", "REGATTA_BROKER_URL"),
        "REGATTA_REDIS_URL": ("queue", "REGATTA_REDIS_URL"),
        "REGATTA_COORDINATION": ("coordination", "REGATTA_COORDINATION"),
    }


@pytest.mark.parametrize("name", ["portal-web", "portal-worker", "portal-sweep"])
def test_the_headers_of_the_collector_come_from_a_secret(name: str) -> None:
    objects = installation({"traces.endpoint": "http://collector:4318", "traces.existingSecret": "collector"})
    assert settings_of(objects)["REGATTA_OTLP_ENDPOINT"] == "http://collector:4318"
    assert variables(objects, name) == {"REGATTA_OTLP_HEADERS": ("collector", "REGATTA_OTLP_HEADERS")}


def test_external_servers_leave_nothing_of_the_own_ones() -> None:
    names = {name_of(body) for body in installation(EXTERNAL)}
    assert not names & {"postgresql", "redis", "etcd"}


def test_the_gateway_reaches_external_servers_of_etcd_and_nothing_else() -> None:
    objects = installation(EXTERNAL)
    (given,) = [
        each["value"]
        for each in container(objects, "Deployment", "coordination-gateway")["env"]
        if each["name"] == "REGATTA_COORDINATION_SERVERS"
    ]
    assert given == "etcd://etcd-1.example.org:2379,etcd-2.example.org:2479"
    first, *others = one(objects, "NetworkPolicy", "coordination-gateway")["spec"]["egress"]
    assert first["to"] == [{"ipBlock": {"cidr": "10.9.0.0/24"}}]
    assert [port["port"] for port in first["ports"]] == [2379, 2479]
    assert [rule["ports"][0]["port"] for rule in others] == [53]


def test_changed_settings_restart_the_portal_s_pods_and_no_others() -> None:
    def checksums(given: Given) -> dict[str, str | None]:
        found = {name_of(each): each["spec"]["template"]["metadata"] for each in workloads(installation(given))}
        return {name: metadata.get("annotations", {}).get(CHECKSUM) for name, metadata in found.items()}

    before, after = checksums({}), checksums({"settings": {"REGATTA_LOG_LEVEL": "DEBUG"}})
    assert {name for name in before if before[name] != after[name]} == {"portal-web", "portal-worker", "portal-sweep"}


@pytest.mark.parametrize(
    ("path", "setting"),
    [
        ("builds.baseImage", "BASE_IMAGE"),
        ("jobs.gpuResource", "KUBERNETES_GPU"),
        ("checkpoints.intervalSeconds", "CHECKPOINT_SECONDS"),
        ("mail.from", "DEFAULT_FROM_EMAIL"),
    ],
)
def test_a_default_that_is_not_in_the_manifests_is_that_of_the_portal(path: str, setting: str) -> None:
    assert BY_PATH[path].default == getattr(settings, setting)


# --- Storage ---------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("kind", "name"), [("PersistentVolumeClaim", "portal-data"), ("StatefulSet", "postgresql"), ("StatefulSet", "etcd")]
)
def test_a_volume_has_its_storage_class_and_size(kind: str, name: str) -> None:
    section = "persistence" if kind == "PersistentVolumeClaim" else f"{name}.persistence"
    found = one(installation({f"{section}.storageClass": "fast", f"{section}.size": "77Gi"}), kind, name)["spec"]
    spec = found if kind == "PersistentVolumeClaim" else found["volumeClaimTemplates"][0]["spec"]
    assert spec["storageClassName"] == "fast"
    assert spec["resources"]["requests"]["storage"] == "77Gi"


def test_a_bucket_has_its_address_and_its_keys_from_a_secret() -> None:
    objects = installation({"s3.bucket": "regatta", "s3.prefix": "/a/", "s3.existingSecret": "keys"})
    assert settings_of(objects)["REGATTA_STORAGE"] == "s3://regatta/a"
    assert variables(objects, "portal-sweep")["AWS_SECRET_ACCESS_KEY"] == ("keys", "AWS_SECRET_ACCESS_KEY")


@pytest.mark.invariant("Checkpoints use volumes that namespaces of jobs admit.")
def test_an_nfs_server_becomes_an_inline_csi_volume_of_jobs_and_portal() -> None:
    objects = installation({"checkpoints.nfs.server": "10.0.0.5", "checkpoints.nfs.path": "/c"})
    volume = {"csi": {"driver": "nfs.csi.k8s.io", "volumeAttributes": {"server": "10.0.0.5", "share": "/c"}}}
    found = settings_of(objects)
    assert json.loads(found["REGATTA_KUBERNETES_CHECKPOINTS"]) == volume
    for workload in portal_workloads(objects):
        assert {"name": "checkpoints", **volume} in pod_of(workload)["volumes"]
        mount = {"name": "checkpoints", "mountPath": found["REGATTA_KUBERNETES_CHECKPOINTS_DIR"]}
        assert all(mount in each["volumeMounts"] for each in containers_of(workload))
