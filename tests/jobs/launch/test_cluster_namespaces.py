"""The portal's namespaces on the cluster, with their quotas and settings."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from pytest_django import Settings

from jobs.backends import factory as backend_factory
from jobs.backends.base import LaunchFailed
from jobs.launch import cluster_namespaces
from jobs.messages import cluster as messages
from jobs.operator.client.api import Refusal
from jobs.operator.tenants.namespace_manifests import NAMESPACE_LABEL, BadReach
from quota.models import Limit
from rbac.models import Namespace
from tests.jobs.operator.secretive_server import SecretiveServer
from tests.messages import pattern
from tests.personas import Personas

NOW = datetime(2026, 1, 1, tzinfo=UTC)
ENDPOINTS = "/api/v1/namespaces/default/endpoints/kubernetes"
NAMESPACE_PATH = "/api/v1/namespaces/regatta-team"
QUOTA = f"{NAMESPACE_PATH}/resourcequotas/regatta-quota"


@pytest.fixture
def server(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> SecretiveServer:
    settings.CLUSTER_BACKEND = "kubernetes"
    settings.INGEST_URL = "http://10.0.0.5:8000"
    found = SecretiveServer()
    subset = {"addresses": [{"ip": "10.0.0.1"}], "ports": [{"port": 6443}]}
    found.objects[ENDPOINTS] = {"metadata": {"name": "kubernetes"}, "subsets": [subset]}
    monkeypatch.setattr(backend_factory, "api_server", lambda: found)
    return found


@pytest.fixture
def team(personas: Personas) -> Namespace:
    return Namespace.objects.get(name="team")


def egress(server: SecretiveServer) -> list[Any]:
    path = "/apis/networking.k8s.io/v1/namespaces/regatta-team/networkpolicies/allow-platform"
    return list(server.objects[path]["spec"]["egress"])


def test_a_namespace_is_made_for_its_first_job_with_the_quota_that_it_has_in_the_portal(
    server: SecretiveServer, team: Namespace
) -> None:
    Limit.objects.create(namespace=team, resource="cpu", amount=3, borrow=1)
    assert cluster_namespaces.ready(team)
    assert server.objects[NAMESPACE_PATH]["metadata"]["labels"][NAMESPACE_LABEL] == "team"
    assert server.objects[QUOTA]["spec"]["hard"]["requests.cpu"] == "4000m"
    assert egress(server) == [
        {"to": [{"ipBlock": {"cidr": "10.0.0.5/32"}}], "ports": [{"protocol": "TCP", "port": 8000}]}
    ]


def test_the_local_backend_and_namespaces_made_by_an_admin_make_no_cluster_calls(
    server: SecretiveServer, team: Namespace, settings: Settings
) -> None:
    settings.KUBERNETES_NAMESPACES = False
    assert cluster_namespaces.ready(team)
    settings.KUBERNETES_NAMESPACES, settings.CLUSTER_BACKEND = True, "local"
    assert cluster_namespaces.ready(team)
    cluster_namespaces.NamespaceUpdates().when_due(NOW)
    assert server.calls == []


def test_a_namespace_that_others_made_fails_the_launch(server: SecretiveServer, team: Namespace) -> None:
    server.objects[NAMESPACE_PATH] = {"metadata": {"name": "regatta-team"}}
    with pytest.raises(LaunchFailed, match=pattern(messages.CLUSTER_NAMESPACE_FOREIGN)) as failed:
        cluster_namespaces.ready(team)
    assert not failed.value.retryable


def test_a_namespace_that_is_being_deleted_is_waited_for(server: SecretiveServer, team: Namespace) -> None:
    assert cluster_namespaces.ready(team)
    server.objects[NAMESPACE_PATH]["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    assert not cluster_namespaces.ready(team)


@pytest.mark.parametrize(("status", "retryable"), [(0, True), (503, True), (403, False)])
def test_a_refusal_of_the_cluster_fails_the_launch(
    server: SecretiveServer,
    team: Namespace,
    monkeypatch: pytest.MonkeyPatch,
    status: int,
    retryable: bool,
) -> None:
    def refuse(*_: Any) -> None:
        raise Refusal(status, "No", "the cluster's words")

    monkeypatch.setattr(server, "apply", refuse)
    with pytest.raises(LaunchFailed, match="the cluster's words") as failed:
        cluster_namespaces.ready(team)
    assert failed.value.retryable is retryable


def test_a_pass_applies_changes_and_removes_closed_namespaces(server: SecretiveServer, team: Namespace) -> None:
    assert cluster_namespaces.ready(team)
    Limit.objects.create(namespace=team, resource="cpu", amount=5)
    cluster_namespaces.sync()
    assert server.objects[QUOTA]["spec"]["hard"]["requests.cpu"] == "5000m"
    Namespace.objects.filter(pk=team.pk).update(closed=NOW)
    cluster_namespaces.sync()
    assert NAMESPACE_PATH not in server.objects


def test_a_pass_is_made_at_most_once_a_minute(server: SecretiveServer, db: None) -> None:
    tenancy = cluster_namespaces.NamespaceUpdates()
    tenancy.when_due(NOW)
    before = len(server.calls)
    assert before
    tenancy.when_due(NOW + timedelta(seconds=59))
    assert len(server.calls) == before
    tenancy.when_due(NOW + timedelta(seconds=60))
    assert len(server.calls) > before


def test_a_cluster_that_does_not_answer_ends_no_sweep(
    server: SecretiveServer, db: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: Any) -> None:
        raise Refusal(0, "Unreachable")

    monkeypatch.setattr(server, "get", refuse)
    assert cluster_namespaces.sync() == 0


def test_addresses_of_the_settings_and_explicit_rules_are_in_reach(settings: Settings) -> None:
    settings.INGEST_URL = "http://portal.regatta-system:8000"
    settings.IMAGE_REGISTRY = "10.0.0.6:5000/regatta"
    settings.COORDINATION = "etcd://root:secret@10.0.0.7:2379,10.0.0.8:2379/x"
    settings.KUBERNETES_REACH = [{"to": [{"namespaceSelector": {}}], "ports": [8000]}]
    found = [(reach.peers[0], reach.ports) for reach in cluster_namespaces.settings_of_tenants([]).reach]
    assert found == [
        ({"ipBlock": {"cidr": "10.0.0.6/32"}}, (5000,)),
        ({"ipBlock": {"cidr": "10.0.0.7/32"}}, (2379,)),
        ({"ipBlock": {"cidr": "10.0.0.8/32"}}, (2379,)),
        ({"namespaceSelector": {}}, (8000,)),
    ]


def test_jobs_reach_the_coordination_gateway_instead_of_etcd(settings: Settings) -> None:
    settings.INGEST_URL, settings.IMAGE_REGISTRY, settings.KUBERNETES_REACH = "", "", []
    settings.COORDINATION = "etcd://root:secret@10.0.0.7:2379"
    settings.COORDINATION_JOBS = "etcd://10.0.0.9:2379"
    found = [reach.peers[0] for reach in cluster_namespaces.settings_of_tenants([]).reach]
    assert found == [{"ipBlock": {"cidr": "10.0.0.9/32"}}]


@pytest.mark.parametrize("rule", ["10.0.0.5", {"to": []}, {"to": {}, "ports": [1]}, {"to": [], "ports": ["http"]}])
def test_a_rule_that_cannot_be_read_is_refused_with_its_form(settings: Settings, rule: Any) -> None:
    settings.KUBERNETES_REACH = [rule]
    with pytest.raises(BadReach, match="REGATTA_KUBERNETES_REACH takes"):
        cluster_namespaces.settings_of_tenants([])


def test_nodes_pull_with_the_credentials_of_the_file(
    server: SecretiveServer, settings: Settings, tmp_path: Path
) -> None:
    (tmp_path / "config.json").write_text('{"auths": {}}')
    settings.KUBERNETES_PULL_CREDENTIALS = str(tmp_path / "config.json")
    assert cluster_namespaces.settings_of_tenants([]).credentials == '{"auths": {}}'
