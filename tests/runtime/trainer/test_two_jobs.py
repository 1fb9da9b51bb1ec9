"""Two jobs on one machine: neither reads nor changes the parameters of the other."""

from __future__ import annotations

import time
from pathlib import Path

import numpy as np
import pytest

from runtime.messages import training as messages
from tests.messages import mentions
from tests.runtime.trainer.attempt import Attempt
from tests.waiting import until

pytestmark = pytest.mark.processes

VICTIM = """
import os, time
import numpy as np
from runtime import dist

job = dist.init()
p = job.params({"w": np.zeros(8, "f4")}, opt=dist.SGD(1.0))
steps = 0
while not os.path.exists("attacked"):
    p.push_pull({"w": np.ones(8, "f4")}, n=1)
    steps += 1
    job.report(step=steps)
    time.sleep(0.01)
np.savez("result.npz", w=p["w"], steps=steps)
"""

# The job id, the ports and a trainer's incarnation are no secrets: only the proof keeps the attacker out.
ATTACK = """
import os, sys
import numpy as np
from runtime import dist
from runtime.errors import RegattaError
from runtime.protocol.client import Client
from runtime.protocol.frames import DType, Header, Op, job_crc

dist.init()
answers = tries = 0
blocks = [(Header(Op.BLOCK, dtype=DType.F32), np.full(8, 1000, "f4").data.cast("B"))]
for address in os.environ["VICTIMS"].split(","):
    for secret in (b"", os.environ["REGATTA_WIRE_SECRET"].encode()):
        for op, body, numbers in (
            (Op.PULL, {}, ()),
            (Op.PUSH, {"samples": 1}, blocks),
            (Op.TASK_GET, {"request": 1, "ended": -1, "done": []}, ()),
        ):
            client = Client(
                address,
                job=job_crc("job", 1),
                incarnation=int(os.environ["INCARNATION"]),
                secret=secret,
                deadline=0.2,
            )
            tries += 1
            try:
                client.request(op, body, numbers, lambda header: memoryview(bytearray(header.size)))
                answers += 1
            except RegattaError as error:
                answers += getattr(error, "code", "unproven") != "unproven"
            client.close()
print("tries", tries, "answers", answers, flush=True)
"""


@pytest.mark.invariant(
    "A process without the attempt's secret reads and changes nothing of the job's master and pservers."
)
def test_a_job_neither_reads_nor_changes_the_parameters_of_another(tmp_path: Path) -> None:
    scripts = {name: tmp_path / f"{name}.py" for name in ("victim", "attack")}
    scripts["victim"].write_text(VICTIM)
    scripts["attack"].write_text(ATTACK)
    common = {"REGATTA_PSERVERS": "1", "REGATTA_TRAINERS": "1", "REGATTA_DATASET": "public/digits"}
    victim = Attempt(tmp_path / "victim", scripts["victim"], **common)
    attacker: Attempt | None = None
    try:
        for role in ("master", "pserver", "trainer"):
            victim.start(role, 0)
        until("the victim trains", lambda: bool(victim.replicas["trainer-0"].points))
        addresses = ",".join(member.address for member in victim.members() if member.address)
        attacker = Attempt(
            tmp_path / "attacker",
            scripts["attack"],
            **common,
            REGATTA_JOB_ID="other",
            REGATTA_WIRE_SECRET="fedcba9876543210" * 4,
            VICTIMS=addresses,
            INCARNATION=str(next(member.incarnation for member in victim.members() if member.role == "trainer")),
        )
        attacker.run(trainers=1)
        assert attacker.log("trainer-0").split()[-4:] == ["tries", "12", "answers", "0"]
        (victim.output / "attacked").touch()
        assert victim.wait("trainer-0", 30) == 0
        result = np.load(victim.output / "result.npz")
        assert (result["w"] == -float(result["steps"])).all()
        for name in ("pserver-0", "master-0"):
            assert mentions(victim.log(name), messages.CONNECTION_REFUSED)
    finally:
        victim.close()
        if attacker:
            attacker.close()


def test_neither_master_nor_parameter_server_begins_without_a_secret(tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text("from runtime import dist; dist.init()")
    attempt = Attempt(tmp_path / "attempt", script, REGATTA_WIRE_SECRET="", REGATTA_PSERVERS="1")
    begun = time.monotonic()
    try:
        for role in ("master", "pserver", "trainer"):
            attempt.start(role, 0)
            assert attempt.wait(f"{role}-0", 30) != 0
            assert "REGATTA_WIRE_SECRET is not set" in attempt.log(f"{role}-0")
    finally:
        attempt.close()
    assert time.monotonic() - begun < 60
