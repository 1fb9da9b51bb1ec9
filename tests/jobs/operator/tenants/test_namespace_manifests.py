"""The objects of a portal's namespace on the cluster."""

from __future__ import annotations

import copy
import json
from collections.abc import Iterator
from dataclasses import replace
from ipaddress import ip_address, ip_network
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jobs.operator.manifests.podgroup import amount_of
from jobs.operator.tenants import namespace_manifests as manifests
from jobs.operator.tenants.namespace_manifests import BadReach, ClusterConfig, Reach, Tenant
from runtime.control import identity

GIB = 1024**3
TENANT = Tenant("team", {"cpu": 16.0, "memory": 16 * GIB, "gpu": 2, "jobs": 8, "storage": 1}, {"cpu": 4.0})
CONFIG = ClusterConfig(
    portal="regatta",
    prefix="regatta-",
    account="regatta-system/portal",
    reach=(Reach.address("10.0.0.5", 8000), Reach.address("10.0.0.6", 5000)),
    api=(("10.0.0.1", 6443),),
    credentials='{"auths": {}}',
)
addresses = st.ip_addresses(v=4).map(str)
networks = st.builds(
    lambda address, bits: str(ip_network(f"{address}/{bits}", strict=False)), addresses, st.integers(0, 32)
)
ports = st.sampled_from([53, 443, 5000, 6443, 8000])


def of(kind: str, tenant: Tenant = TENANT, config: ClusterConfig = CONFIG) -> list[dict[str, Any]]:
    return [json.loads(json.dumps(body)) for body in manifests.objects(tenant, config) if body["kind"] == kind]


def the(kind: str, tenant: Tenant = TENANT, config: ClusterConfig = CONFIG) -> dict[str, Any]:
    (found,) = of(kind, tenant, config)
    return found


def outward(config: ClusterConfig = CONFIG) -> Iterator[dict[str, Any]]:
    for policy in of("NetworkPolicy", config=config):
        yield from policy["spec"].get("egress", ())


def lets_out(config: ClusterConfig, address: str, port: int) -> bool:
    """Whether the policies allow TCP from a pod to an address outside the cluster."""
    for rule in outward(config):
        if port in {each["port"] for each in rule.get("ports", ()) if each["protocol"] == "TCP"} or "ports" not in rule:
            for block in (peer["ipBlock"] for peer in rule["to"] if "ipBlock" in peer):
                closed = [ip_network(each) for each in block.get("except", ())]
                here = ip_address(address)
                if here in ip_network(block["cidr"]) and not any(here in each for each in closed):
                    return True
    return False


# --- Objects ---------------------------------------------------------------------------------------------------------
def test_a_namespace_has_a_binding_an_account_a_pull_secret_amounts_and_walls() -> None:
    kinds = [body["kind"] for body in manifests.objects(TENANT, CONFIG)]
    assert kinds[:6] == ["Namespace", "RoleBinding", "ServiceAccount", "Secret", "ResourceQuota", "LimitRange"]
    assert set(kinds[6:]) == {"NetworkPolicy"}


def test_everything_is_made_in_an_order_that_the_kinds_have() -> None:
    places = [manifests.ORDER.index(body["kind"]) for body in manifests.objects(replace(TENANT), CONFIG)]
    assert places[0] == 0
    assert manifests.objects(TENANT, CONFIG)[6]["metadata"]["name"] == manifests.DENY


def test_all_objects_have_the_portals_labels_and_the_namespace() -> None:
    for body in manifests.objects(TENANT, CONFIG):
        assert manifests.is_ours(body, CONFIG)
        assert body["metadata"].get("namespace", "regatta-team") == "regatta-team"


def test_another_portal_s_is_not_ours() -> None:
    other = replace(CONFIG, portal="staging")
    assert not any(manifests.is_ours(body, other) for body in manifests.objects(TENANT, CONFIG))


def test_pods_are_given_no_token_and_find_the_pull_secret() -> None:
    account = the("ServiceAccount")
    assert account["metadata"]["name"] == "default"
    assert account["automountServiceAccountToken"] is False
    assert account["imagePullSecrets"] == [{"name": the("Secret")["metadata"]["name"]}]


def test_without_credentials_there_is_no_pull_secret() -> None:
    config = replace(CONFIG, credentials="")
    assert of("Secret", config=config) == []
    assert the("ServiceAccount", config=config)["imagePullSecrets"] == []


def test_the_portal_is_bound_in_the_namespace_to_the_one_role() -> None:
    binding = the("RoleBinding")
    assert binding["roleRef"]["name"] == manifests.TENANT_ROLE
    assert binding["subjects"] == [{"kind": "ServiceAccount", "namespace": "regatta-system", "name": "portal"}]
    assert of("RoleBinding", config=replace(CONFIG, account="")) == []


# --- Amounts ---------------------------------------------------------------------------------------------------------
def test_the_quota_is_the_portal_s_with_what_may_be_borrowed() -> None:
    hard = the("ResourceQuota")["spec"]["hard"]
    assert amount_of(hard["requests.cpu"]) == 20
    assert "limits.cpu" not in hard, "what a pod may use of an idle node is held by nobody"
    assert amount_of(hard["limits.memory"]) == 16 * GIB
    assert hard["requests.nvidia.com/gpu"] == "2"
    assert hard["services.loadbalancers"] == hard["services.nodeports"] == "0"


def test_what_has_no_end_in_the_portal_has_none_on_the_cluster() -> None:
    tenant = Tenant("team", {"cpu": None, "memory": None, "gpu": None})
    assert set(the("ResourceQuota", tenant)["spec"]["hard"]) == {"pods", "services.loadbalancers", "services.nodeports"}
    assert "max" not in the("LimitRange", tenant)["spec"]["limits"][0]


@given(st.floats(0, 1000), st.floats(0, 64 * GIB))
def test_a_container_without_requests_gets_no_more_than_the_namespace_has(cpu: float, memory: float) -> None:
    (limits,) = the("LimitRange", Tenant("team", {"cpu": cpu, "memory": memory}))["spec"]["limits"]
    assert amount_of(limits["default"]["memory"]) <= amount_of(limits["max"]["memory"])
    assert float(amount_of(limits["default"]["cpu"])) <= cpu + 0.001
    assert limits["defaultRequest"] == limits["default"]
    assert "cpu" not in limits["max"]


# --- Network policies ------------------------------------------------------------------------------------------------
def test_everything_is_forbidden_first() -> None:
    deny = of("NetworkPolicy")[0]["spec"]
    assert deny == {"podSelector": {}, "policyTypes": ["Ingress", "Egress"]}


def ingress_rules(config: ClusterConfig = CONFIG) -> list[Any]:
    return [rule for policy in of("NetworkPolicy", config=config) for rule in policy["spec"].get("ingress", ())]


def test_nobody_comes_in_but_the_namespace_s_own_pods_and_the_portal_s_web_and_sweep_pods() -> None:
    own = {"podSelector": {}}
    names = {"key": "app.kubernetes.io/name", "operator": "In", "values": ["portal-web", "portal-sweep"]}
    portal = {
        "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "regatta-system"}},
        "podSelector": {"matchExpressions": [names]},
    }
    assert [rule["from"] for rule in ingress_rules()] == [[own], [portal]]
    assert [rule["from"] for rule in ingress_rules(replace(CONFIG, account=""))] == [[own]]


@pytest.mark.invariant(
    "Of other namespaces, only the portal's web and sweep pods reach the control port of a job's pod."
)
def test_the_portal_s_web_and_sweep_pods_reach_the_control_port_alone() -> None:
    own, portal = ingress_rules()
    assert "ports" not in own
    assert portal["ports"] == [{"protocol": "TCP", "port": identity.PORT}]


@pytest.mark.invariant(
    "Pods reach the pods of their namespace, the DNS and the addresses in the settings, and nothing else."
)
def test_pods_reach_what_the_installation_names_and_nothing_beside_it() -> None:
    assert lets_out(CONFIG, "10.0.0.5", 8000)
    assert lets_out(CONFIG, "10.0.0.6", 5000)
    assert not lets_out(CONFIG, "10.0.0.5", 5000)
    assert not lets_out(CONFIG, "8.8.8.8", 443)


def test_every_rule_but_that_of_the_own_pods_names_its_ports() -> None:
    without = [rule["to"] for rule in outward() if "ports" not in rule]
    assert without == [[{"podSelector": {}}]]


@pytest.mark.invariant("The pods of a namespace reach neither the API server nor the metadata service of the cloud.")
@given(st.lists(st.tuples(networks, ports), max_size=4), addresses)
def test_whatever_is_named_neither_the_api_server_nor_the_metadata_is_in_reach(
    named: list[tuple[str, int]], api: str
) -> None:
    reach = tuple(Reach(({"ipBlock": {"cidr": network}},), (port,)) for network, port in named)
    config = replace(CONFIG, reach=reach, api=((api, 6443), (api, 443)))
    try:
        manifests.objects(TENANT, config)
    except BadReach:
        return
    for port in (443, 6443):
        assert not lets_out(config, api, port)
    for port in (53, 80, 443, 5000, 6443, 8000):
        assert not lets_out(config, "169.254.169.254", port)


@pytest.mark.parametrize(("address", "port"), [("169.254.169.254", 80), ("10.0.0.1", 6443)])
def test_a_reach_to_the_metadata_or_the_api_server_is_an_error(address: str, port: int) -> None:
    with pytest.raises(BadReach, match="which no pod may reach"):
        manifests.objects(TENANT, replace(CONFIG, reach=(Reach.address(address, port),)))


def test_another_port_of_the_api_server_s_machine_can_be_named() -> None:
    config = replace(CONFIG, reach=(Reach.address("10.0.0.1", 5000),))
    assert lets_out(config, "10.0.0.1", 5000)
    assert not lets_out(config, "10.0.0.1", 6443)


def test_an_address_without_ports_is_refused() -> None:
    with pytest.raises(BadReach, match="needs its ports"):
        manifests.objects(TENANT, replace(CONFIG, reach=(Reach(({"ipBlock": {"cidr": "10.0.0.5/32"}},), ()),)))


# --- Drift -----------------------------------------------------------------------------------------------------------
def as_stored(body: Any) -> dict[str, Any]:
    """Return the object as an API server stores it: with fields of its own, and normalised amounts."""
    stored: dict[str, Any] = json.loads(json.dumps(body))
    stored["metadata"] |= {"uid": "1", "resourceVersion": "7"}
    stored["status"] = {"phase": "Active"}
    hard = stored.get("spec", {}).get("hard", {})
    hard |= {"limits.memory": "16Gi", "requests.cpu": "20"} if hard else {}
    return stored


@pytest.mark.parametrize("body", manifests.objects(TENANT, CONFIG), ids=lambda body: body["metadata"]["name"])
def test_what_is_as_it_should_be_is_not_written_again(body: Any) -> None:
    assert not manifests.drifted(body, as_stored(body))
    assert manifests.drifted(body, None)


def leaves(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    pairs = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, inner in pairs:
        yield from leaves(inner, (*path, key))
    if not isinstance(value, dict | list):
        yield path


@pytest.mark.parametrize("body", manifests.objects(TENANT, CONFIG), ids=lambda body: body["metadata"]["name"])
def test_any_changed_or_removed_field_counts_as_drift(body: Any) -> None:
    for path in leaves(json.loads(json.dumps(body))):
        for change in (lambda _: "77", None):
            actual = as_stored(body)
            inner: Any = actual
            for key in path[:-1]:
                inner = inner[key]
            if change is None:
                del inner[path[-1]]
            else:
                inner[path[-1]] = change(inner[path[-1]])
            assert manifests.drifted(body, actual), (path, inner)


def test_an_added_amount_or_rule_counts_as_drift() -> None:
    quota = the("ResourceQuota")
    more = copy.deepcopy(quota)
    more["spec"]["hard"]["requests.storage"] = "1"
    assert manifests.drifted(quota, more)
    policy = of("NetworkPolicy")[1]
    wider = copy.deepcopy(policy)
    wider["spec"]["egress"].append({"to": [{"ipBlock": {"cidr": "0.0.0.0/0"}}]})
    assert manifests.drifted(policy, wider)
    opened = copy.deepcopy(of("NetworkPolicy")[0])
    opened["spec"]["egress"] = [{}]
    assert manifests.drifted(of("NetworkPolicy")[0], opened)
    narrower = copy.deepcopy(of("NetworkPolicy")[0])
    narrower["spec"]["podSelector"] = {"matchLabels": {"walled": "yes"}}
    assert manifests.drifted(of("NetworkPolicy")[0], narrower)
