"""The PaddleJob and the Secret of a launch plan."""

from __future__ import annotations

import base64
import json
from dataclasses import replace
from datetime import timedelta
from pathlib import Path, PurePosixPath
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jobs.backends.base import AttemptRef, LaunchFailed, LaunchPlan, ReplicaPlan
from jobs.backends.kubernetes import manifests
from jobs.backends.kubernetes.backend import KubernetesBackend
from jobs.backends.kubernetes.manifests import Cluster, Mount
from jobs.messages import cluster as messages
from jobs.operator.client.resources import JOBS
from jobs.operator.decide.children import grace_of
from jobs.operator.model import crd, spec
from jobs.operator.model.namespace_names import LIMIT, name_of
from runtime import contract
from tests.jobs.operator.api_servers import FaithfulServer
from tests.messages import pattern

ATTEMPT = "3e9f117c-d751-4a80-845b-44632332fdf0"
CLUSTER = Cluster(image="registry/runtime:1", prefix="regatta-")
ENVIRONMENT = {
    contract.DATASET: "team/mine@3",
    contract.DATA_PATH: "/srv/shelf/version-3:/srv/public",
    contract.COORDINATION: "etcd://user:password@10.0.0.1:2379",
    contract.INGEST_URL: "http://10.0.0.1:8000",
}


def plan(trainers: int = 2, pservers: int = 2, **fields: Any) -> LaunchPlan:
    counts = {contract.MASTER: 1, contract.PSERVER: pservers, contract.TRAINER: trainers}
    replicas = tuple(
        ReplicaPlan(f"{role}-{index}", role, index, ("python", "run.py"), dict(ENVIRONMENT), 0.25, 512 * 2**20)
        for role, count in counts.items()
        for index in range(count)
    )
    ref = AttemptRef("job-1", ATTEMPT, 3, "team")
    made = LaunchPlan(
        ref, "team", Path("/bundle"), replicas, timedelta(seconds=5), 2**20, "rga_secret", wire_secret="wired"
    )
    return replace(made, **fields)


def with_environment(made: LaunchPlan, **variables: str) -> LaunchPlan:
    env = {**ENVIRONMENT, **{getattr(contract, name): value for name, value in variables.items()}}
    return replace(made, replicas=tuple(replace(one, environment=env) for one in made.replicas))


def pod(role: str = "worker", made: LaunchPlan | None = None, cluster: Cluster = CLUSTER) -> dict[str, Any]:
    found: dict[str, Any] = manifests.paddle_job(made or plan(), cluster)["spec"][role]["template"]["spec"]
    return found


def container(role: str = "worker", made: LaunchPlan | None = None, cluster: Cluster = CLUSTER) -> dict[str, Any]:
    found: dict[str, Any] = pod(role, made, cluster)["containers"][0]
    return found


def environment(role: str = "worker", made: LaunchPlan | None = None, cluster: Cluster = CLUSTER) -> dict[str, Any]:
    """Return the environment; for values by reference, the reference."""
    return {one["name"]: one.get("value", one.get("valueFrom")) for one in container(role, made, cluster)["env"]}


# --- The PaddleJob ---------------------------------------------------------------------------------------------------
def test_the_controller_finds_nothing_wrong_with_it() -> None:
    read = spec.read(manifests.paddle_job(plan(), CLUSTER))
    assert read.problems == ()
    assert {name: role.replicas for name, role in read.roles.items()} == {"master": 1, "ps": 2, "worker": 2}


def test_it_has_no_field_that_the_schema_would_drop() -> None:
    known = crd.schema()["properties"]["spec"]["properties"]
    assert set(manifests.paddle_job(plan(), CLUSTER)["spec"]) <= set(known)


def test_starts_in_advance_are_possible_where_the_installation_has_them_and_the_replicas_have_agents() -> None:
    site = replace(CLUSTER, replaces=True)
    assert manifests.paddle_job(plan(), site)["spec"]["maxStarts"] == {}
    assert "maxStarts" not in manifests.paddle_job(plan(agents=False), site)["spec"]
    assert "maxStarts" not in manifests.paddle_job(plan(), CLUSTER)["spec"]


def granting(site: manifests.Cluster) -> tuple[FaithfulServer, KubernetesBackend]:
    server = FaithfulServer()
    server.call("POST", JOBS.path("regatta-team"), manifests.paddle_job(plan(), site))
    return server, KubernetesBackend(cast(Any, server), site)


def test_starts_are_granted_and_taken_back() -> None:
    server, backend = granting(replace(CLUSTER, replaces=True))
    backend.grant_starts(plan().ref, {"trainer-0": 3, "pserver-0": 2})
    assert server.of("PaddleJob")[0]["spec"]["maxStarts"] == {"worker-0": 3, "ps-0": 2}
    backend.grant_starts(plan().ref, {"trainer-0": 0})
    assert server.of("PaddleJob")[0]["spec"]["maxStarts"] == {"ps-0": 2}


def test_an_equal_grant_is_not_written() -> None:
    server, backend = granting(replace(CLUSTER, replaces=True))
    for _ in range(2):
        backend.grant_starts(plan().ref, {"trainer-0": 3})
    assert server.count("PATCH", "paddlejobs") == 1


def test_nothing_is_granted_to_a_job_without_the_field_or_one_that_was_stopped() -> None:
    server, backend = granting(CLUSTER)
    backend.grant_starts(plan().ref, {"trainer-0": 3})
    assert "maxStarts" not in server.of("PaddleJob")[0]["spec"]
    server, backend = granting(replace(CLUSTER, replaces=True))
    backend.stop(plan().ref, timedelta(seconds=1))
    backend.grant_starts(plan().ref, {"trainer-0": 3})
    assert server.of("PaddleJob")[0]["spec"]["maxStarts"] == {}


def test_the_controller_does_not_decide_about_restarts() -> None:
    assert spec.read(manifests.paddle_job(plan(), CLUSTER)).starts == {}


def test_the_longest_pod_name_is_a_hosts_name() -> None:
    assert len(manifests.pod_name(ATTEMPT, "trainer-9999")) <= 63


def test_roles_and_places_are_named_back_and_forth() -> None:
    for replica in ("master-0", "pserver-1", "trainer-12"):
        assert manifests.replica_of(manifests.place_of(replica)) == replica


@given(st.integers(1, 9), st.integers(0, 9))
def test_every_replica_of_the_plan_has_its_place(trainers: int, pservers: int) -> None:
    read = spec.read(manifests.paddle_job(plan(trainers, pservers), CLUSTER))
    expected = {manifests.pod_name(ATTEMPT, one.name) for one in plan(trainers, pservers).replicas}
    assert {name for name, _, _ in read.pod_names()} == expected


# --- Secrets ---------------------------------------------------------------------------------------------------------
@pytest.mark.invariant("A PaddleJob contains no secret.")
def test_no_secret_is_in_the_paddle_job() -> None:
    made = with_environment(plan(), USER_ENVIRONMENT='{"API_KEY": "sesame"}')
    written = json.dumps(manifests.paddle_job(made, CLUSTER))
    assert not [word for word in ("rga_secret", "wired", "password", "sesame") if word in written]


def test_the_agents_get_their_secrets_as_variables_and_none_as_a_file() -> None:
    reference = {"secretKeyRef": {"name": f"attempt-{ATTEMPT}", "key": "trainer.REGATTA_INGEST_TOKEN"}}
    assert environment()[contract.INGEST_TOKEN] == reference
    assert [volume for volume in pod()["volumes"] if "secret" in volume or "projected" in volume] == []


def test_the_secret_has_what_the_variables_refer_to() -> None:
    made = with_environment(plan(), USER_ENVIRONMENT='{"A": "b"}')
    data = manifests.secret(made, CLUSTER)["data"]
    for role in ("master", "ps", "worker"):
        for value in environment(role, made).values():
            if isinstance(value, dict) and "secretKeyRef" in value:
                assert value["secretKeyRef"]["key"] in data
    assert base64.b64decode(data["trainer.REGATTA_INGEST_TOKEN"]) == b"rga_secret"


@pytest.mark.parametrize(("role", "ours"), [("master", "master"), ("ps", "pserver"), ("worker", "trainer")])
def test_every_role_gets_the_secret_of_the_wire_from_the_attempt_s_secret(role: str, ours: str) -> None:
    key = f"{ours}.REGATTA_WIRE_SECRET"
    reference = {"secretKeyRef": {"name": f"attempt-{ATTEMPT}", "key": key}}
    assert environment(role)[contract.WIRE_SECRET] == reference
    assert base64.b64decode(manifests.secret(plan(), CLUSTER)["data"][key]) == b"wired"


def test_every_role_gets_the_key_of_the_control_channel_and_a_port_for_it() -> None:
    made = plan(control_key="control")
    for role, ours in (("master", "master"), ("ps", "pserver"), ("worker", "trainer")):
        key = f"{ours}.{contract.CONTROL_KEY}"
        reference = {"secretKeyRef": {"name": f"attempt-{ATTEMPT}", "key": key}}
        assert environment(role, made)[contract.CONTROL_KEY] == reference
        assert base64.b64decode(manifests.secret(made, CLUSTER)["data"][key]) == b"control"
        assert environment(role, made)[contract.CONTROL_PORT] == "7071"


def test_a_plan_without_a_control_key_has_no_control_port() -> None:
    assert contract.CONTROL_PORT not in environment(made=plan(control_key=""))
    assert "ports" not in manifests.template(plan(), plan().replicas[0], CLUSTER)["spec"]["containers"][0]


def test_a_plan_with_another_protocol_has_no_wire_secret() -> None:
    assert contract.WIRE_SECRET not in environment(made=plan(wire_secret=""))


# --- A pod -----------------------------------------------------------------------------------------------------------
@pytest.mark.invariant(
    "A pod runs without root, capabilities, a service account token and a writable root file system."
)
@pytest.mark.parametrize("role", ["master", "ps", "worker"])
def test_a_pod_may_do_no_more_than_it_needs(role: str) -> None:
    made = pod(role)
    assert made["automountServiceAccountToken"] is False
    assert made["enableServiceLinks"] is False
    assert made["securityContext"]["runAsNonRoot"] is True
    assert made["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    assert made["containers"][0]["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "capabilities": {"drop": ["ALL"]},
        "readOnlyRootFilesystem": True,
    }
    assert not [field for field in ("hostNetwork", "hostPID", "hostIPC") if made.get(field)]


@pytest.mark.parametrize("role", ["master", "ps", "worker"])
def test_requests_and_limits_are_always_set(role: str) -> None:
    resources = container(role)["resources"]
    assert (resources["requests"]["cpu"], resources["requests"]["memory"]) == ("250m", str(512 * 2**20))
    assert {**resources["limits"], "cpu": "250m"} == resources["requests"]


@pytest.mark.parametrize(("burst", "cores"), [(1.0, "1000m"), (0.0, "250m"), (0.1, "250m")])
def test_what_a_node_has_idle_a_small_replica_may_use(burst: float, cores: str) -> None:
    resources = container(cluster=replace(CLUSTER, burst=burst))["resources"]
    assert (resources["requests"]["cpu"], resources["limits"]["cpu"]) == ("250m", cores)


def test_a_gpu_is_what_the_cluster_calls_so() -> None:
    made = plan()
    made = replace(made, replicas=tuple(replace(one, gpu=2) for one in made.replicas))
    assert (
        container(made=made, cluster=replace(CLUSTER, gpu="example.com/gpu"))["resources"]["limits"]["example.com/gpu"]
        == "2"
    )


def test_what_can_be_written_is_named() -> None:
    mounts = {mount["mountPath"] for mount in container()["volumeMounts"] if not mount.get("readOnly")}
    assert mounts == {"/regatta", "/tmp", "/dev/shm"}


def test_the_node_waits_longer_than_the_agent() -> None:
    assert pod()["terminationGracePeriodSeconds"] > float(environment()[contract.GRACE_SECONDS]) + 3


def test_a_pod_reads_its_identity_from_its_labels() -> None:
    env = environment()
    assert env[contract.REPLICA] == "trainer-$(REGATTA_INDEX)"
    names = [one["name"] for one in container()["env"]]
    assert names.index(contract.INDEX) < names.index(contract.REPLICA), "only what stands before is put in"


@pytest.mark.parametrize("text", ["$(HOME)", "a $(B) c", "$$(HOME)"])
def test_what_the_user_wrote_is_not_taken_for_a_variable(text: str) -> None:
    made = with_environment(plan(), DATASET=text)
    assert environment(made=made)[contract.DATASET].replace("$$(", "$(") == text


def test_the_agent_reports_before_the_node_kills() -> None:
    assert int(environment()[contract.LIMIT_MEMORY]) < 512 * 2**20


# --- Code and data ---------------------------------------------------------------------------------------------------
def test_without_an_image_of_its_own_the_base_is_used_and_the_code_is_fetched() -> None:
    assert container()["image"] == "registry/runtime:1"
    assert contract.CODE_DIR not in environment()


def test_an_image_of_its_own_has_the_code() -> None:
    made = plan(image="registry/job@sha256:1")
    assert container(made=made)["image"] == "registry/job@sha256:1"
    assert environment(made=made)[contract.CODE_DIR] == "/opt/job/code"
    assert contract.CODE_DIR not in environment("ps", made), "platform roles run none of it"


def test_paddle_s_own_servers_have_the_code_and_no_checkpoints_and_meet_through_gloo() -> None:
    cluster = replace(CLUSTER, checkpoints={"persistentVolumeClaim": {"claimName": "checkpoints"}})
    made = with_environment(plan(image="registry/job@sha256:1", framework="paddle"), USER_CODE="1")
    env = environment("ps", made, cluster)
    assert env[contract.CODE_DIR] == "/opt/job/code"
    assert contract.CHECKPOINT_DIR not in env
    assert spec.read(manifests.paddle_job(made, cluster)).with_gloo == 1


def test_data_that_is_mounted_nowhere_is_fetched() -> None:
    env = environment()
    assert (env[contract.DATA_PATH], env[contract.FETCH_DATA]) == ("/regatta/data", "/regatta/data")


def test_data_that_is_mounted_is_read_where_it_lies() -> None:
    volume = {"persistentVolumeClaim": {"claimName": "shelf", "readOnly": True}}
    cluster = replace(CLUSTER, data=(Mount(PurePosixPath("/srv/shelf"), volume),))
    env = environment(cluster=cluster)
    assert env[contract.DATA_PATH] == "/regatta/data:/srv/shelf/version-3"
    assert contract.FETCH_DATA not in env
    mount = next(one for one in container(cluster=cluster)["volumeMounts"] if one["mountPath"] == "/srv/shelf")
    assert mount["readOnly"] is True


def test_checkpoints_are_of_the_job_and_not_for_trainers() -> None:
    cluster = replace(CLUSTER, checkpoints={"persistentVolumeClaim": {"claimName": "checkpoints"}})
    assert environment("ps", cluster=cluster)[contract.CHECKPOINT_DIR] == "/checkpoints/job-1"
    assert contract.CHECKPOINT_DIR not in environment("worker", cluster=cluster)
    assert [one for one in container("worker", cluster=cluster)["volumeMounts"] if "check" in one["name"]] == []


def test_pods_have_the_placement_of_the_installation() -> None:
    ours = {"key": "training", "operator": "Exists", "effect": "NoSchedule"}
    cluster = replace(CLUSTER, placement={"nodeSelector": {"training": "yes"}, "tolerations": [ours]})
    found = pod(cluster=cluster)
    assert found["nodeSelector"] == {"training": "yes"}
    assert found["tolerations"] == [*pod()["tolerations"], ours]


# --- Users' own images -----------------------------------------------------------------------------------------------
def bare(*command: str, **variables: str) -> LaunchPlan:
    own = {contract.USER_ENVIRONMENT: json.dumps({"WORD": "open $(sesame)", "HOME": "/home/me"})}
    env = {**ENVIRONMENT, contract.DATASET: "", contract.TRAINERS: "2", **own, **variables}
    replicas = tuple(
        ReplicaPlan(f"trainer-{index}", "trainer", index, command, env, 0.25, 512 * 2**20) for index in range(2)
    )
    return replace(plan(), image="registry/mine:1", agents=False, framework="command", replicas=replicas)


def test_an_image_that_is_used_as_it_is_starts_what_it_starts() -> None:
    found = container(made=bare())
    assert (found["image"], found["imagePullPolicy"]) == ("registry/mine:1", "Always")
    assert not {"command", "args", "workingDir"} & set(found)


def test_an_image_that_is_used_as_it_is_gets_the_parameters() -> None:
    found = {one["name"]: one.get("value") for one in container(made=bare(REGATTA_PARAM_LR="0.1"))["env"]}
    assert found["REGATTA_PARAM_LR"] == "0.1"


def test_the_command_of_the_job_replaces_the_one_of_the_image() -> None:
    assert container(made=bare("sh", "-c", "echo $(date)"))["command"] == ["sh", "-c", "echo $$(date)"]


def test_it_may_do_no_more_than_others() -> None:
    ours, theirs = container(), container(made=bare())
    assert theirs["securityContext"] == ours["securityContext"]
    assert theirs["resources"] == ours["resources"]
    assert pod(made=bare())["securityContext"] == pod()["securityContext"]
    assert pod(made=bare())["automountServiceAccountToken"] is False


def test_a_bare_pod_gets_its_identity_and_no_access_to_the_platform() -> None:
    env = environment(made=bare())
    assert {contract.REPLICA, contract.INDEX, contract.TRAINERS} <= set(env)
    assert not {contract.INGEST_TOKEN, contract.INGEST_URL, contract.COORDINATION} & set(env)
    assert set(manifests.secret(bare(), CLUSTER)["data"]) == {"trainer.WORD", "trainer.HOME"}


def test_a_person_s_own_variables_are_in_the_secret_and_come_before_the_platform_s() -> None:
    env = environment(made=bare())
    name = manifests.job_name(ATTEMPT)
    assert env["WORD"] == {"secretKeyRef": {"name": name, "key": "trainer.WORD"}}
    assert env["HOME"] == {"secretKeyRef": {"name": name, "key": "trainer.HOME"}}
    assert len({one["name"] for one in container(made=bare())["env"]}) == len(container(made=bare())["env"])


def test_a_mounted_dataset_is_visible_and_an_unmounted_one_is_refused() -> None:
    volume = {"persistentVolumeClaim": {"claimName": "shelf", "readOnly": True}}
    cluster, made = replace(CLUSTER, data=(Mount(PurePosixPath("/srv/shelf"), volume),)), bare(REGATTA_DATASET="team/a")
    assert environment(made=made, cluster=cluster)[contract.DATA_PATH] == "/srv/shelf/version-3"
    with pytest.raises(LaunchFailed, match=pattern(messages.DATASET_NOT_MOUNTED)):
        KubernetesBackend(Nobody(), CLUSTER).launch(made)  # type: ignore[arg-type]


# --- Namespaces ------------------------------------------------------------------------------------------------------
def test_a_namespace_keeps_its_name_where_that_can_be_one() -> None:
    assert name_of("team", "regatta-") == "regatta-team"


@given(st.text(min_size=0, max_size=80), st.text(min_size=0, max_size=80))
def test_every_namespace_has_a_name_of_its_own(one: str, other: str) -> None:
    assert (name_of(one, "regatta-") == name_of(other, "regatta-")) == (one == other)
    assert 0 < len(name_of(one, "regatta-")) <= LIMIT


# --- Missing parts of the installation -------------------------------------------------------------------------------
class Nobody:
    """An API server that must not get any request."""

    def call(self, *arguments: object, **more: object) -> dict[str, object]:
        raise AssertionError(arguments)


@pytest.mark.parametrize(
    ("made", "cluster", "why"),
    [
        (plan(), replace(CLUSTER, image=""), pattern(messages.JOB_IMAGE_NOT_CONFIGURED)),
        (with_environment(plan(), COORDINATION=""), CLUSTER, pattern(messages.ETCD_NOT_CONFIGURED)),
    ],
)
def test_a_lack_of_the_installation_is_reported_before_any_request(
    made: LaunchPlan, cluster: Cluster, why: str
) -> None:
    with pytest.raises(LaunchFailed, match=why) as refused:
        KubernetesBackend(Nobody(), cluster).launch(made)  # type: ignore[arg-type]
    assert not refused.value.retryable


def test_a_framework_without_coordination_needs_no_store() -> None:
    made = with_environment(plan(), COORDINATION="")
    assert environment(made=made)[contract.COORDINATION] == "sqlite:////regatta/coordination.sqlite3"


# --- Stopping --------------------------------------------------------------------------------------------------------
def test_the_grace_of_a_stopped_attempt_reaches_the_controller() -> None:
    """The controller may be faster than the portal; a grace can be shortened afterwards but never extended."""
    server, made = FaithfulServer(), plan()
    server.call("POST", JOBS.path("regatta-team"), manifests.paddle_job(made, CLUSTER))
    backend = KubernetesBackend(cast(Any, server), CLUSTER)
    backend.stop(made.ref, timedelta(seconds=30))
    [stopped] = server.of("PaddleJob")
    env = spec.read(stopped)
    assert (env.run.suspend, grace_of(env)) == (True, manifests.grace_seconds(30))
    assert stopped["metadata"]["labels"] == manifests.paddle_job(made, CLUSTER)["metadata"]["labels"]
