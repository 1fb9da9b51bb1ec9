"""Values files: what is refused, and how the error says what to write instead."""

from __future__ import annotations

from typing import Any

import pytest

from portal.deployment.fields import BY_PATH, FIELDS
from portal.deployment.render import checked
from portal.deployment.values import BadValues, parse
from tests.portal.deployment.installations import KNOWN, SAMPLES, values_file


def problems(text: str) -> tuple[str, ...]:
    with pytest.raises(BadValues) as raised:
        checked(text, KNOWN)
    return raised.value.problems


def problem(text: str) -> str:
    (found,) = problems(text)
    return found


def test_an_empty_file_has_all_defaults() -> None:
    assert parse("") == {field.path: field.default for field in FIELDS}


def test_a_value_replaces_its_own_default_alone() -> None:
    values = parse("web: {resources: {requests: {cpu: 500m}}}")
    assert values["web.resources.requests.cpu"] == "500m"
    assert values["web.resources.requests.memory"] == BY_PATH["web.resources.requests.memory"].default


def test_a_number_of_cores_needs_no_quotes() -> None:
    assert parse("web: {resources: {limits: {cpu: 4}}}")["web.resources.limits.cpu"] == "4"


@pytest.mark.parametrize("path", BY_PATH)
def test_every_value_can_be_given(path: str) -> None:
    value, others = SAMPLES[path]
    assert parse(values_file({**others, path: value}))[path] == value


# --- Unknown keys ----------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("text", "path", "nearest"),
    [
        ("signup: open", "signup", "signUp"),
        ("image: {repositry: a/b}", "image.repositry", "image.repository"),
        ("web: {resources: {request: {cpu: 1}}}", "web.resources.request", "web.resources.requests"),
        ("ingress: {class: nginx}", "ingress.class", "ingress.className"),
        # Known in another place.
        ("storageClass: fast", "storageClass", "persistence.storageClass"),
        ("imagePullSecrets: []", "imagePullSecrets", "image.pullSecrets"),
    ],
)
def test_an_unknown_key_is_an_error_with_the_nearest_name(text: str, path: str, nearest: str) -> None:
    assert problem(text) == f"{path} is unknown. Did you mean {nearest}?"


def test_a_key_without_a_near_name_is_an_error_with_the_names_of_its_place() -> None:
    found = problem("redis: {zzz: 1}")
    assert found == "redis.zzz is unknown. Known here: enabled, image, existingSecret, resources."


def test_all_problems_are_reported_at_once() -> None:
    found = problems("signUp: maybe\nweb: {replicaCount: 0}\nnothing: 1")
    assert [text.split(":")[0].split(" ")[0] for text in found] == ["nothing", "signUp", "web.replicaCount"]


def test_a_section_that_is_no_mapping_is_an_error_with_its_names() -> None:
    assert problem("mail: portal@site.org").startswith("mail is 'portal@site.org'; write a mapping with from,")


# --- Passwords -------------------------------------------------------------------------------------------------------
@pytest.mark.invariant("A values file contains no password, and an error repeats none.")
@pytest.mark.parametrize(
    ("text", "place"),
    [
        ("externalPostgresql: {password: hunter2-secret}", "externalPostgresql.existingSecret"),
        ("adminPassword: hunter2-secret", "existingSecret"),
        ("s3: {secretKey: hunter2-secret}", "s3.existingSecret"),
        ("settings: {REGATTA_SECRET_KEY: hunter2-secret}", "existingSecret"),
        ("settings: {REGATTA_OIDC_SECRET: hunter2-secret}", "extraSecrets"),
        ("settings: {PIP_EXTRA_INDEX_URL: 'https://me:hunter2-secret@host/simple'}", "extraSecrets"),
        ("settings: {REGATTA_DATABASE_URL: 'postgresql://a:hunter2-secret@b/c'}", "externalPostgresql.existingSecret"),
    ],
)
def test_a_password_is_refused_with_its_place_and_without_its_value(text: str, place: str) -> None:
    found = problem(text)
    assert found.endswith(f" {place}.")
    assert "Secret" in found
    assert "hunter2" not in found


def test_every_setting_with_a_secret_is_known_as_one() -> None:
    from portal.deployment.settings_of_values import DECIDED, SECRET

    names = {name for name in KNOWN if name.endswith(("_SECRET", "_SECRET_KEY", "_SECRET_KEY_FALLBACKS", "_PASSWORD"))}
    # The names of Secrets, and of a second factor.
    plain = {"REGATTA_BUILD_SECRET", "REGATTA_KUBERNETES_PULL_SECRET"}
    assert names - plain <= SECRET.keys() | DECIDED.keys()


# --- Kinds and checks ------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("path", "value", "expected"),
    [
        ("image.tag", 1.1, "a number needs quotes"),
        ("image.tag", "a b", "a tag"),
        ("image.registry", "https://registry.site.org", "without https://"),
        ("image.repository", "regatta/portal:1", "without a registry and a tag"),
        ("image.pullSecrets", "registry", "a list of texts"),
        ("image.pullSecrets", ["No_Name"], "a name of a Kubernetes object"),
        ("image.pullPolicy", "Sometimes", "one of"),
        ("web.replicaCount", 0, "between 1 and 100"),
        ("web.replicaCount", True, "a whole number"),
        ("web.replicaCount", "2", "a whole number"),
        ("web.autoscaling.enabled", "yes", "true or false"),
        ("web.resources.limits.memory", "1 GB", "a quantity"),
        ("kubeVersion", "1.19", "at least 1.20"),
        ("nodeSelector", {"gpu": True}, "numbers and true need quotes"),
        ("tolerations", [{"keys": "a"}], "'keys' is not a field of a toleration"),
        ("tolerations", {"key": "a"}, "a list of mappings"),
        ("affinity", {"podAffinities": {}}, "nodeAffinity"),
        ("ingress.hosts", ["https://train.site.org"], "a host name"),
        ("ingress.tls", [{"secret": "a"}], "secretName"),
        ("ingress.tls", [{"secretName": "a", "hosts": "b"}], "a list of texts"),
        ("ingress.trustedProxies", ["10.0.0.1/8"], "an address or a network"),
        ("builds.packageIndex", "packages.site.org", "https://"),
        ("s3.bucket", "Bucket", "a name of a bucket"),
        ("checkpoints.nfs.path", "checkpoints", "an absolute path"),
        ("externalEtcd.servers", ["etcd.site.org"], "HOST:PORT"),
        ("settings", {"REGATTA_LOG_LEVEL": 1}, "texts"),
    ],
)
def test_a_wrong_value_is_an_error_with_its_path_and_what_to_write(path: str, value: Any, expected: str) -> None:
    found = problem(values_file({path: value}))
    assert found.startswith(path)
    assert expected in found


@pytest.mark.invariant("Checkpoints use volumes that namespaces of jobs admit.")
@pytest.mark.parametrize("volume", [{"nfs": {"server": "10.0.0.5", "path": "/"}}, {"hostPath": {"path": "/mnt"}}])
def test_a_volume_that_namespaces_of_jobs_refuse_is_no_volume_for_checkpoints(volume: dict[str, Any]) -> None:
    assert "Pod Security Standard" in problem(values_file({"checkpoints.volume": volume}))


@pytest.mark.parametrize(
    ("text", "line"),
    [("a: [1", 1), ("web: {}\nweb: {}", 2), ("image: {}\n  tag: x", 2), ("1: x", 1)],
)
def test_bad_yaml_is_an_error_with_its_line(text: str, line: int) -> None:
    assert problem(text).startswith(f"Line {line}, column ")


def test_a_list_is_no_values_file() -> None:
    assert "mapping" in problem("- image")


# --- Settings --------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("REGATTA_LOG_LEVLE", "Did you mean REGATTA_LOG_LEVEL?"),
        ("ZZZ", "is no setting of the portal."),
        ("REGATTA_SIGN_UP", "is set by signUp."),
        ("REGATTA_AGENT_PORT", "cannot be changed"),
    ],
)
def test_a_setting_that_is_unknown_or_has_another_place_is_an_error(name: str, expected: str) -> None:
    found = problem(values_file({"settings": {name: "x"}}))
    assert found.startswith(f"settings.{name} ")
    assert expected in found


@pytest.mark.parametrize("name", ["REGATTA_QUOTA_CPU", "PIP_EXTRA_INDEX_URL", "HTTPS_PROXY"])
def test_other_settings_of_the_portal_and_of_pip_are_accepted(name: str) -> None:
    assert checked(values_file({"settings": {name: "8"}}), KNOWN)["settings"] == {name: "8"}


# --- Combinations ----------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({"externalPostgresql.existingSecret": "a"}, "has no effect while postgresql.enabled is true"),
        ({"externalEtcd.servers": ["a:1"]}, "has no effect while etcd.enabled is true"),
        ({"etcd.enabled": False}, "Name the servers"),
        ({"web.autoscaling.minReplicas": 9}, "more than maxReplicas"),
        ({"ingress.hosts": []}, "Name at least one host"),
        ({"ingress.tls": [{"secretName": "a", "hosts": ["b.site.org"]}]}, "ingress.tls names b.site.org"),
        ({"s3.prefix": "a"}, "has no effect without s3.bucket"),
        ({"traces.existingSecret": "a"}, "has no effect without traces.endpoint"),
        ({"checkpoints.nfs.server": "a", "checkpoints.volume": {"csi": {}}}, "two volumes"),
        ({"persistence.existingClaim": "a", "persistence.storageClass": "b"}, "has no effect with"),
    ],
)
def test_a_combination_that_cannot_work_is_an_error(given: dict[str, Any], expected: str) -> None:
    assert expected in problem(values_file(given))
