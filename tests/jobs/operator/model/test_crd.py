"""The schema of a PaddleJob: accepted and refused objects."""

from __future__ import annotations

import copy
import re
from pathlib import Path
from typing import Any

import pytest
import yaml
from jsonschema import Draft202012Validator

from jobs.operator.decide.plan import plan
from jobs.operator.model.crd import manifest, schema, text
from jobs.operator.model.observed import Observed
from jobs.operator.model.spec import CleanPodPolicy, read
from tests.jobs.operator.world import START, World, paddle_job, role

EXAMPLES = sorted(Path(__file__).parents[1].glob("examples/*.yaml"))
_ROOT = Path(__file__).parents[4]


def problems(job: dict[str, Any]) -> list[str]:
    return [error.message for error in Draft202012Validator(schema()).iter_errors(job)]


@pytest.mark.invariant("Every example manifest of paddle-operator 0.3.5 is accepted.")
@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_every_manifest_of_paddle_operator_is_taken_and_makes_its_pods(path: Path) -> None:
    job = yaml.safe_load(path.read_text())
    assert problems(job) == []
    assert read(job).problems == ()
    pods = [action for action in plan(job, Observed(), START).actions if action.kind == "Pod"]  # type: ignore[union-attr]
    assert len(pods) == sum(job["spec"][name]["replicas"] for name in ("ps", "worker") if name in job["spec"])


def test_the_example_of_the_page_about_paddlejobs_is_taken() -> None:
    page = (_ROOT / "docs" / "paddlejob.md").read_text()
    job = yaml.safe_load(page.partition("```yaml\n")[2].partition("```")[0])
    assert (problems(job), read(job).problems) == ([], ())


def fields_of_the_page() -> list[str]:
    """Return the paths of the table *Added fields*; the second of ``spec.worker.requests``, ``limits`` is complete."""
    table = (
        (_ROOT / "docs" / "paddlejob.md").read_text().partition("## Added fields\n")[2].partition("\n\nA template")[0]
    )
    found = []
    for row in table.splitlines():
        paths = re.findall(r"`([\w.]+)`", row.split("|")[1]) if row.startswith("| `") else []
        found += [path if "." in path else f"{paths[0].rpartition('.')[0]}.{path}" for path in paths]
    return found


@pytest.mark.parametrize("path", fields_of_the_page())
def test_every_field_of_the_page_is_in_the_schema_with_a_description(path: str) -> None:
    found = schema()
    for name in path.split("."):
        found = found["properties"][name]
    assert found["description"].endswith(".")


@pytest.mark.parametrize(
    "spec",
    [
        {"cleanPodPolicy": "Sometimes"},
        {"intranet": "Pod"},
        {"withGloo": 3},
        {"elastic": -1},
        {"worker": {"template": {"spec": {"containers": [{"name": "paddle"}]}}}},
        {"worker": role(0)},
        {"worker": {"replicas": 1, "template": {"spec": {"containers": []}}}},
        {"worker": {"replicas": 1, "template": {"spec": {}}}},
        {"worker": role(1, limits=-1)},
        {"runPolicy": {"backoffLimit": -1}},
        {"runPolicy": {"activeDeadlineSeconds": "soon"}},
        {"failurePolicy": {"rules": [{"action": "Shrug"}]}},
        {"failurePolicy": {"rules": [{"exitCodes": [1]}]}},
        {"successPolicy": {"operator": "Most"}},
        {"successPolicy": {"roles": ["chief"]}},
        {"schedulingPolicy": {"minAvailable": 0}},
        {"schedulingPolicy": {"minResources": {"cpu": "lots"}}},
    ],
    ids=str,
)
def test_what_cannot_be_is_refused(spec: dict[str, Any]) -> None:
    assert problems(paddle_job(**{"worker": 1, **spec})) != []


@pytest.mark.parametrize(
    ("written", "meant"), [("OnFailed", CleanPodPolicy.ON_FAILURE), ("Nerver", CleanPodPolicy.NEVER)]
)
def test_a_misspelt_policy_of_an_example_means_what_its_author_meant(written: str, meant: CleanPodPolicy) -> None:
    job = paddle_job(worker=1, cleanPodPolicy=written)
    assert problems(job) == []
    assert read(job).clean is meant


def test_every_status_that_is_written_fits_the_schema() -> None:
    world = World(paddle_job(ps=1, worker=2, runPolicy={"backoffLimit": 1, "stallTimeoutSeconds": 60})).up()
    statuses = [copy.deepcopy(world.job)]
    world.pod("wd-worker-1", {"phase": "Failed"})
    for _ in range(4):
        world.step()
        statuses.append(copy.deepcopy(world.job))
    assert [problem for job in statuses for problem in problems(job)] == []


def test_workers_can_be_scaled_and_the_columns_show_the_status() -> None:
    (version,) = manifest()["spec"]["versions"]
    assert version["subresources"]["scale"]["specReplicasPath"] == ".spec.worker.replicas"
    assert version["subresources"]["status"] == {}
    assert [column["name"] for column in version["additionalPrinterColumns"]][:2] == ["Status", "Mode"]
    assert manifest()["spec"]["names"]["shortNames"] == ["pdj"]


def test_the_manifest_to_apply_is_the_module_s() -> None:
    written = (_ROOT / "deploy" / "kubernetes" / "crd.yaml").read_text()
    assert written == text(), "write it again: python -m jobs.operator crd > deploy/kubernetes/crd.yaml"
