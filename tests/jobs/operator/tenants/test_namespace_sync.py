"""Synchronisation of namespaces on the cluster, from any existing state."""

from __future__ import annotations

import copy
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jobs.messages import cluster as messages
from jobs.operator.client.api import Refusal
from jobs.operator.tenants import namespace_manifests as manifests
from jobs.operator.tenants.namespace_manifests import ClusterConfig, Tenant
from jobs.operator.tenants.namespace_sync import TenantRefused, Tenants
from tests.jobs.operator.secretive_server import SecretiveServer, SettlingServer
from tests.messages import pattern

CONFIG = ClusterConfig(portal="regatta", prefix="regatta-", account="regatta-system/portal", credentials="{}")
TEAM = Tenant("team", {"cpu": 4.0, "memory": 1024.0, "gpu": 0})
NAMESPACE = "/api/v1/namespaces/regatta-team"
JOBS = "/apis/batch.paddlepaddle.org/v1/namespaces/regatta-team/paddlejobs"
PODS = f"{NAMESPACE}/pods"


def ready() -> tuple[SecretiveServer, Tenants]:
    server = SecretiveServer()
    tenants = Tenants(server, CONFIG)
    tenants.ensure(TEAM)
    server.calls.clear()
    return server, tenants


def test_the_namespace_is_made_before_what_is_in_it_and_the_walls_before_any_pod_could_be() -> None:
    server = SecretiveServer()
    Tenants(server, CONFIG).ensure(TEAM)
    assert server.written[0] == NAMESPACE
    assert server.written[1].endswith("rolebindings/regatta-portal")


def test_what_is_as_it_should_be_is_left_alone_but_the_secret_that_cannot_be_read() -> None:
    server, tenants = ready()
    tenants.ensure(TEAM)
    assert server.written == [f"{NAMESPACE}/secrets/regatta-pull"]


@given(st.data())
def test_from_whatever_part_of_it_is_there_all_of_it_comes_to_be(data: st.DataObject) -> None:
    server, tenants = ready()
    whole = copy.deepcopy(server.objects)
    for path in data.draw(st.lists(st.sampled_from(sorted(whole)), unique=True)):
        server.objects.pop(path, None)
    for path in data.draw(st.lists(st.sampled_from(sorted(server.objects)), unique=True)) if server.objects else ():
        if path != NAMESPACE:
            server.objects[path] = {"metadata": server.objects[path]["metadata"]}
    tenants.ensure(TEAM)
    assert server.objects == whole


def test_a_quota_that_the_portal_changed_is_changed_on_the_cluster() -> None:
    server, tenants = ready()
    tenants.ensure(Tenant("team", {**TEAM.limits, "cpu": 8.0}))
    assert server.objects[f"{NAMESPACE}/resourcequotas/regatta-quota"]["spec"]["hard"]["requests.cpu"] == "8000m"


def test_a_wall_that_somebody_opened_is_closed() -> None:
    server, tenants = ready()
    wall = f"/apis/networking.k8s.io/v1/namespaces/regatta-team/networkpolicies/{manifests.DENY}"
    server.objects[wall]["spec"]["egress"] = [{}]
    tenants.ensure(TEAM)
    assert "egress" not in server.objects[wall]["spec"]


def test_a_namespace_that_others_made_is_not_taken_over() -> None:
    server = SecretiveServer()
    server.objects[NAMESPACE] = {"metadata": {"name": "regatta-team"}}
    with pytest.raises(TenantRefused, match=pattern(messages.CLUSTER_NAMESPACE_FOREIGN)) as refused:
        Tenants(server, CONFIG).ensure(TEAM)
    assert not refused.value.passing
    assert server.written == []


def test_a_namespace_that_others_made_is_never_ready() -> None:
    server = SecretiveServer()
    server.objects[NAMESPACE] = {"metadata": {"name": "regatta-team"}}
    with pytest.raises(TenantRefused, match=pattern(messages.CLUSTER_NAMESPACE_FOREIGN)):
        Tenants(server, CONFIG).ready(TEAM)


def test_a_namespace_that_is_on_its_way_out_is_waited_for() -> None:
    server, tenants = ready()
    server.objects[NAMESPACE]["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    with pytest.raises(TenantRefused, match="is being removed") as refused:
        tenants.ensure(TEAM)
    assert refused.value.passing
    assert not tenants.ready(TEAM)
    del server.objects[NAMESPACE]
    assert tenants.ready(TEAM)


def test_a_namespace_is_ready_once_the_cluster_applies_its_binding() -> None:
    tenants = Tenants(SettlingServer(times=3), CONFIG)
    assert [tenants.ready(TEAM) for _ in range(4)] == [False, False, False, True]


def test_a_binding_that_the_cluster_does_not_apply_after_a_minute_is_a_refusal() -> None:
    server = SettlingServer(times=2)
    assert not Tenants(server, CONFIG).ready(TEAM)
    with pytest.raises(Refusal):
        Tenants(server, CONFIG, clock=lambda: time.time() + 61).ready(TEAM)


def test_a_pass_repairs_what_is_there_and_makes_no_namespace_that_nobody_needs_yet() -> None:
    server, tenants = ready()
    del server.objects[f"/apis/networking.k8s.io/v1/namespaces/regatta-team/networkpolicies/{manifests.DENY}"]
    done = tenants.sweep([TEAM, Tenant("idle", {})], [])
    assert done.written == 2  # the network policy, and the Secret
    assert done.problems == {}
    assert "/api/v1/namespaces/regatta-idle" not in server.objects


def test_what_goes_wrong_with_one_namespace_holds_up_no_other() -> None:
    server, tenants = ready()
    tenants.ensure(Tenant("other", {}))
    server.objects[NAMESPACE]["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    del server.objects["/api/v1/namespaces/regatta-other/limitranges/regatta-limits"]
    done = tenants.sweep([TEAM, Tenant("other", {})], [])
    assert set(done.problems) == {"team"}
    assert "/api/v1/namespaces/regatta-other/limitranges/regatta-limits" in server.objects


def test_of_a_closed_namespace_the_jobs_go_first_then_their_pods_then_the_namespace() -> None:
    server, tenants = ready()
    server.objects[f"{JOBS}/one"] = {"metadata": {"name": "one"}}
    server.objects[f"{PODS}/one-worker-0"] = {"metadata": {"name": "one-worker-0"}}
    assert tenants.sweep([], ["team"]).removed == 0
    assert ("DELETE", f"{JOBS}/one") in server.calls
    assert tenants.sweep([], ["team"]).removed == 0
    del server.objects[f"{PODS}/one-worker-0"]
    assert tenants.sweep([], ["team"]).removed == 1
    assert NAMESPACE not in server.objects


def test_an_unknown_namespace_is_left_alone() -> None:
    server, tenants = ready()
    assert tenants.sweep([], []).removed == 0
    assert NAMESPACE in server.objects


def test_a_namespace_of_another_portal_is_left_alone_though_it_was_closed_here() -> None:
    server, tenants = ready()
    server.objects[NAMESPACE]["metadata"]["labels"][manifests.PORTAL_LABEL] = "staging"
    assert tenants.sweep([], ["team"]).removed == 0
    assert NAMESPACE in server.objects
