"""Invalid input of a script to the runtime: the message says what, where, and what to do, in the reader's language."""

from __future__ import annotations

from typing import Any, NamedTuple

import httpx
import pytest

from regatta import Client, Job
from tests.end_to_end.support import code
from tests.end_to_end.support.portal import RunningPortal

pytestmark = [pytest.mark.processes, pytest.mark.timeout(180)]
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
    english: str
    chinese: str


CASES = {
    "shape": Case(
        giving('params.push_pull({"w": np.zeros(3, "f4")}, n=len(y))'),
        "trainer-0 exited with code 1: runtime.errors.UsageError: The gradient of 'w' has shape (3,), the parameter "
        "(64, 10).",
        "'w' 的梯度形状是 (3,)，而参数的形状是 (64, 10)。",
    ),
    "type": Case(
        giving('params.push_pull({"w": np.zeros((64, 10))}, n=len(y))'),
        "The gradient of 'w' is float64, the parameter float32; convert it with .astype(\"float32\").",
        "'w' 的梯度类型是 float64，而参数是 float32；请用 .astype(\"float32\") 转换。",
    ),
    "name": Case(
        giving('params.push_pull({"v": np.zeros((64, 10), "f4")}, n=len(y))'),
        "There is no parameter 'v'; there are w.",
        "没有参数 'v'；现有 w。",
    ),
    "text-as-cost": Case(
        giving('job.report(cost="low")'),
        "report takes numbers; cost is 'low' (str).",
        "report 只接受数值；cost 是 'low' (str)。",
    ),
    "too-large": Case(
        giving("pass", shape="60_000_000"),
        "pserver-0 would need 1,667 MiB for its part of the parameters (229 MiB of values, 458 MiB of the optimiser's "
        "state, and room for the gradients and a copy for checkpoints) and has 512 MiB. Ask for more memory",
        "pserver-0 需要 1,667 MiB 存放它那部分参数（参数值 229 MiB，优化器状态 458 MiB，另需 梯度和检查点副本的空间），"
        "而它只有 512 MiB。请为 pserver 角色申请更多内存",
    ),
    "two-inits": Case(
        "from runtime import dist\ndist.init()\ndist.init()\n",
        "dist.init() was called before in this process; use the job that it gave.",
        "本进程已调用过 dist.init()；请使用它返回的任务。",
    ),
    "no-init": Case(
        "print('nothing to do with the platform')\n",
        "The script ended without an error, but it never called dist.init(): the platform trained nothing.",
        "脚本没有出错便结束了，但从未调用 dist.init()：平台没有训练任何内容。",
    ),
}


def specification(name: str) -> dict[str, Any]:
    spec = code.job(name, CASES[name].script)
    spec["roles"]["trainer"]["memory"] = "1Gi"
    return spec


@pytest.fixture(scope="module")
def submitted(running_portal: RunningPortal) -> dict[str, Job]:
    with running_portal.client() as portal:
        return {name: portal.submit(specification(name)) for name in CASES}


@pytest.mark.invariant("A job that cannot run ends with its reason, in the language of the reader.")
@pytest.mark.parametrize("name", CASES)
def test_what_cannot_be_is_told_in_the_readers_language(
    portal: Client, http: httpx.Client, submitted: dict[str, Job], name: str
) -> None:
    job = portal.wait(submitted[name].id, END_SECONDS)
    assert CASES[name].english in job.why, job
    message = http.get(f"/api/v1/jobs/{job.id}", headers={"Accept-Language": "zh-hans"}).json()["why"]
    assert CASES[name].chinese in message


def test_only_a_script_that_never_joined_counts_as_done(portal: Client, submitted: dict[str, Job]) -> None:
    ended = {name: portal.wait(job.id, END_SECONDS).state for name, job in submitted.items()}
    assert ended == {name: "SUCCEEDED" if name == "no-init" else "FAILED" for name in CASES}
