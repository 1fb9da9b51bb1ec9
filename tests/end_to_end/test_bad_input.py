"""Invalid input of a script to the runtime: the message says what, where, and what to do, in the reader's language."""

from __future__ import annotations

from typing import Any, NamedTuple

import httpx
import pytest
from django.utils import translation
from django.utils.translation import gettext

from jobs.messages import jobs as job_messages
from regatta import Client, Job
from runtime.messages import Template
from runtime.messages import training as training_messages
from tests.end_to_end.support import code
from tests.end_to_end.support.portal import RunningPortal
from tests.messages import mentions

pytestmark = [pytest.mark.processes, pytest.mark.timeout(300)]
END_SECONDS = 90.0

TRAINS = """\
import numpy as np
from runtime import dist
job = dist.init()
params = job.params({"w": np.zeros(SHAPE, "f4")}, opt=dist.Adam(0.1))
for x, y in job.steps(job.reader("public/digits", batch=64), passes=1):
    GIVES
"""


def giving(statement: str, shape: str = "(64, 10)") -> str:
    return TRAINS.replace("GIVES", statement).replace("SHAPE", shape)


class Case(NamedTuple):
    script: str
    message: Template


CASES = {
    "shape": Case(
        giving('params.push_pull({"w": np.zeros(3, "f4")}, n=len(y))'), training_messages.GRADIENT_SHAPE_WRONG
    ),
    "type": Case(
        giving('params.push_pull({"w": np.zeros((64, 10))}, n=len(y))'), training_messages.GRADIENT_TYPE_WRONG
    ),
    "name": Case(
        giving('params.push_pull({"v": np.zeros((64, 10), "f4")}, n=len(y))'), training_messages.PARAMETER_UNKNOWN
    ),
    "text-as-cost": Case(giving('job.report(cost="low")'), training_messages.REPORT_VALUE_INVALID),
    "too-large": Case(giving("pass", shape="60_000_000"), training_messages.PSERVER_MEMORY_TOO_SMALL),
    "two-inits": Case("from runtime import dist\ndist.init()\ndist.init()\n", training_messages.INIT_CALLED_TWICE),
    "no-init": Case("print('nothing to do with the platform')\n", job_messages.INIT_NEVER_CALLED),
}


def specification(name: str) -> dict[str, Any]:
    spec = code.job(name, CASES[name].script)
    spec["roles"]["trainer"]["memory"] = "1Gi"
    return spec


@pytest.fixture(scope="module")
def submitted(running_portal: RunningPortal) -> dict[str, Job]:
    with running_portal.client() as portal:
        return {name: portal.jobs.submit(specification(name)) for name in CASES}


@pytest.mark.invariant("A job that cannot run ends with its reason, in the language of the reader.")
@pytest.mark.parametrize("name", CASES)
def test_a_job_that_cannot_run_ends_with_its_reason_in_the_language_of_the_reader(
    portal: Client, http: httpx.Client, submitted: dict[str, Job], name: str
) -> None:
    job = portal.jobs.wait(submitted[name].id, END_SECONDS)
    assert mentions(job.why, CASES[name].message), job
    message = http.get(f"/api/v1/jobs/{job.id}", headers={"Accept-Language": "zh-hans"}).json()["why"]
    with translation.override("zh-hans"):
        assert mentions(message, Template(gettext(CASES[name].message.text))), message


def test_only_a_script_that_never_joined_counts_as_done(portal: Client, submitted: dict[str, Job]) -> None:
    ended = {name: portal.jobs.wait(job.id, END_SECONDS).state for name, job in submitted.items()}
    assert ended == {name: "SUCCEEDED" if name == "no-init" else "FAILED" for name in CASES}
