"""The files in ``deploy/monitoring``: rules, dashboard and scrape configuration agree with code, docs and manifests."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from jobs.operator.client.metrics import Metrics
from portal.common.monitoring.metrics import TABLE, Definition
from tests.portal.deployment.test_manifests import given_settings, named, objects, of

ROOT = Path(__file__).parents[3]
FOLDER = ROOT / "deploy" / "monitoring"
RULES = [rule for group in yaml.safe_load((FOLDER / "alerts.yaml").read_text())["groups"] for rule in group["rules"]]
DASHBOARD = json.loads((FOLDER / "dashboard.json").read_text())
PANELS = [panel for panel in DASHBOARD["panels"] if panel["type"] != "row"]
# Of Prometheus itself and of kube-state-metrics.
FOREIGN = {"up", "kube_statefulset_status_replicas_ready"}
OPERATED = ("portal-web", "portal-worker", "portal-sweep")

each_rule = pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule["alert"])
each_panel = pytest.mark.parametrize("panel", PANELS, ids=lambda panel: panel["title"])


def series_of(definition: Definition) -> Iterator[str]:
    suffixes = ("_bucket", "_sum", "_count") if definition.kind == "histogram" else ("",)
    yield from (f"{definition.name}{suffix}" for suffix in suffixes)


def known_series() -> set[str]:
    controllers = {
        f"{family.name}{suffix}"
        for family in Metrics().registry.collect()
        for suffix in {"counter": ("_total",), "histogram": ("_bucket", "_sum", "_count")}.get(family.type, ("",))
    }
    return {name for definition in TABLE for name in series_of(definition)} | controllers | FOREIGN


def series_in(expression: str) -> set[str]:
    """Return the names of the time series that an expression reads."""
    without_labels = re.sub(r"\{[^}]*\}|\b(by|without)\s*\([^)]*\)", "", expression)
    return set(re.findall(r"\b(?:regatta|paddlejob|kube|up)\w*\b", without_labels))


def labels_in(expression: str) -> set[tuple[str, str]]:
    """Return the (series, label) of each selector."""
    selectors = re.findall(r"(\w+)\{([^}]*)\}", expression)
    return {(series, label) for series, inside in selectors for label in re.findall(r"(\w+)\s*[=!]", inside)}


@each_rule
def test_an_alert_reads_series_that_exist(rule: dict[str, Any]) -> None:
    assert series_in(rule["expr"])
    assert series_in(rule["expr"]) - known_series() == set()


@each_panel
def test_a_panel_reads_series_that_exist(panel: dict[str, Any]) -> None:
    read = [series_in(target["expr"]) for target in panel["targets"]]
    assert all(read)
    assert set().union(*read) - known_series() == set()


@pytest.mark.parametrize("expression", [t["expr"] for p in PANELS for t in p["targets"]] + [r["expr"] for r in RULES])
def test_a_selector_names_labels_that_the_metric_has(expression: str) -> None:
    labels = {name: {*d.labels, "le"} for d in TABLE for name in series_of(d)}
    assert [(s, label) for s, label in labels_in(expression) if s in labels and label not in labels[s]] == []


@each_rule
def test_an_alert_says_what_to_do_and_names_its_section(rule: dict[str, Any]) -> None:
    assert rule["labels"]["severity"] in ("critical", "warning")
    assert {"summary", "description", "runbook"} == rule["annotations"].keys()
    page, _, anchor = rule["annotations"]["runbook"].partition("#")
    titles = re.findall(r"^#+ (.+)$", (ROOT / page).read_text(), re.M)
    assert anchor in {title.lower().replace(" ", "-") for title in titles}


def test_every_section_of_an_alert_has_an_alert() -> None:
    titles = re.findall(r"^#+ (Regatta[A-Z]\w+)$", (ROOT / "docs" / "operations.md").read_text(), re.M)
    assert sorted(titles) == sorted(rule["alert"] for rule in RULES)


def test_the_dashboard_has_a_row_for_each_part() -> None:
    rows = [panel["title"] for panel in DASHBOARD["panels"] if panel["type"] == "row"]
    assert rows == ["Web", "Ingest", "Jobs", "Sweep", "Worker", "Controller"]


def test_no_two_panels_overlap() -> None:
    cells = [
        (x, y)
        for place in (panel["gridPos"] for panel in DASHBOARD["panels"])
        for x in range(place["x"], place["x"] + place["w"])
        for y in range(place["y"], place["y"] + place["h"])
    ]
    assert len(cells) == len(set(cells))


# --- Manifests -------------------------------------------------------------------------------------------------------
def pod(name: str) -> dict[str, Any]:
    (found,) = [body for body in of("Deployment") if named(body) == name]
    return dict(found["spec"]["template"])


@pytest.mark.parametrize("name", OPERATED)
def test_prometheus_finds_the_operations_port_of_a_process(name: str) -> None:
    annotations = pod(name)["metadata"]["annotations"]
    ports = {port["name"]: port["containerPort"] for port in pod(name)["spec"]["containers"][0]["ports"]}
    setting = given_settings()["REGATTA_OPERATIONS_PORT"]
    assert annotations == {"prometheus.io/scrape": "true", "prometheus.io/port": setting}
    assert str(ports["operations"]) == setting


@pytest.mark.invariant("A worker or sweep that hangs fails its liveness probe.")
@pytest.mark.parametrize("name", ["portal-worker", "portal-sweep"])
def test_worker_and_sweep_are_probed_at_the_operations_port(name: str) -> None:
    probe = pod(name)["spec"]["containers"][0]["livenessProbe"]["httpGet"]
    assert probe == {"path": "/healthz", "port": "operations"}


@pytest.mark.invariant("On the cluster only the namespace of Prometheus reaches the operations ports.")
def test_only_the_namespace_of_prometheus_reaches_the_operations_ports() -> None:
    setting = int(given_settings()["REGATTA_OPERATIONS_PORT"])
    ports = {setting, 8080}
    policies = [body for body in objects() if body["kind"] == "NetworkPolicy"]
    admitting = [
        (named(body), rule)
        for body in policies
        for rule in body["spec"].get("ingress", ())
        if not rule.get("ports") or ports & {port["port"] for port in rule["ports"]}
    ]
    assert [name for name, _ in admitting] == ["monitoring"]
    assert admitting[0][1]["from"] == [
        {"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "monitoring"}}}
    ]


def test_the_policy_covers_every_pod_that_prometheus_is_told_to_scrape() -> None:
    (policy,) = [body for body in objects() if named(body) == "monitoring" and body["kind"] == "NetworkPolicy"]
    ((expression),) = policy["spec"]["podSelector"]["matchExpressions"]
    scraped = [
        body["spec"]["template"]["metadata"]["labels"]["app.kubernetes.io/name"]
        for body in of("Deployment")
        if "prometheus.io/scrape" in body["spec"]["template"]["metadata"].get("annotations", {})
    ]
    assert sorted(expression["values"]) == sorted(scraped)


# --- promtool --------------------------------------------------------------------------------------------------------
def promtool(*arguments: str) -> None:
    done = subprocess.run(["promtool", *arguments], cwd=FOLDER, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.prometheus
def test_prometheus_accepts_the_rules() -> None:
    promtool("check", "rules", "alerts.yaml")


@pytest.mark.prometheus
def test_every_alert_fires_when_it_should_and_not_otherwise() -> None:
    promtool("test", "rules", "alerts.test.yaml")


def test_every_alert_has_a_test() -> None:
    tests = yaml.safe_load((FOLDER / "alerts.test.yaml").read_text())["tests"]
    cases = [case for test in tests for case in test["alert_rule_test"]]
    fires = {case["alertname"] for case in cases if case["exp_alerts"]}
    quiet = {case["alertname"] for case in cases if not case["exp_alerts"]}
    assert fires == quiet == {rule["alert"] for rule in RULES}


@pytest.mark.prometheus
def test_prometheus_accepts_the_example_configuration(tmp_path: Path) -> None:
    """Debian's Prometheus is built without the discovery of Kubernetes, so that part stands for an empty list."""
    example = yaml.safe_load((FOLDER / "prometheus.yaml").read_text())
    for job in example["scrape_configs"]:
        if job.pop("kubernetes_sd_configs", None):
            job["static_configs"] = []
    example["rule_files"] = [str(FOLDER / "alerts.yaml")]
    (tmp_path / "prometheus.yaml").write_text(yaml.safe_dump(example))
    promtool("check", "config", str(tmp_path / "prometheus.yaml"))
