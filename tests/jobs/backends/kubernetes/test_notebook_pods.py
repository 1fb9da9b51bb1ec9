"""The pod of a notebook: its home, its token, and the walls of every job's pod."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from jobs.backends.base import LaunchPlan
from jobs.backends.kubernetes import manifests
from jobs.backends.kubernetes.manifests import Cluster
from runtime import contract
from tests.jobs.backends.kubernetes.test_manifests import CLUSTER, container, environment, plan, pod

VOLUME = {"persistentVolumeClaim": {"claimName": "homes"}}
WITH_HOMES = replace(CLUSTER, homes=VOLUME)


def notebook() -> LaunchPlan:
    """Launch plan of a notebook of the namespace with the id 7."""
    (only,) = plan(trainers=1, pservers=0).replicas[1:]
    variables = {**only.environment, contract.CLIENT_TOKEN: "rgt_secret", contract.NOTEBOOK_BASE_URL: "/n/team/"}
    return plan(replicas=(replace(only, home="7", environment=variables),), framework="notebook")


def mounts(cluster: Cluster) -> dict[str, Any]:
    return {one["name"]: one for one in container(made=notebook(), cluster=cluster)["volumeMounts"]}


def test_a_pod_sees_the_home_of_its_own_namespace_alone() -> None:
    home = mounts(WITH_HOMES)["home"]
    assert (home["mountPath"], home["subPath"]) == ("/home/notebook", "homes/7")
    assert {"name": "home", **VOLUME} in pod(made=notebook(), cluster=WITH_HOMES)["volumes"]


def test_without_a_volume_the_home_is_that_of_the_pod() -> None:
    assert "subPath" not in mounts(CLUSTER)["home"]
    assert {"name": "home", "emptyDir": {}} in pod(made=notebook(), cluster=CLUSTER)["volumes"]


def test_pods_of_other_jobs_have_no_home() -> None:
    assert all(one["name"] != "home" for one in pod(cluster=WITH_HOMES)["volumes"])


def test_the_process_is_told_where_its_home_is() -> None:
    assert environment(made=notebook(), cluster=WITH_HOMES)[contract.NOTEBOOK_HOME] == "/home/notebook"


def test_the_token_is_in_the_secret_and_not_in_the_pod() -> None:
    made = notebook()
    assert "rgt_secret" not in str(manifests.paddle_job(made, WITH_HOMES))
    assert f"trainer.{contract.CLIENT_TOKEN}" in manifests.secret(made, WITH_HOMES)["data"]


def test_the_pod_has_the_walls_of_every_job() -> None:
    ours, others = (pod(made=made, cluster=WITH_HOMES) for made in (notebook(), plan()))
    assert ours["securityContext"] == others["securityContext"]
    assert ours["automountServiceAccountToken"] is False
    assert ours["containers"][0]["securityContext"] == others["containers"][0]["securityContext"]
