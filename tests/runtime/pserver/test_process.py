"""A parameter server that is killed and started again, between real processes."""

import signal
import time

import pytest

from tests.runtime.trainer.attempt import ROOT, Attempt

DIGITS = ROOT / "jobs" / "examples" / "recognise_digits" / "train.py"

pytestmark = pytest.mark.processes


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_a_parameter_server_goes_on_from_its_checkpoint(tmp_path, number):
    one = Attempt(
        tmp_path / "one",
        DIGITS,
        REGATTA_PASSES="20",
        REGATTA_DATASET="public/digits",
        REGATTA_CHECKPOINT_DIR=str(tmp_path / "checkpoints"),
        REGATTA_CHECKPOINT_SECONDS="0.1",
    )
    try:
        for role in ("master", "pserver", "trainer"):
            one.start(role, 0)
        until(lambda: "checkpoint of version" in one.log("pserver-0"))
        one.replicas["pserver-0"].process.send_signal(number)
        one.wait("pserver-0", 20)
        assert one.wait("trainer-0", 20) == 75
        for role in ("pserver", "trainer"):
            one.start(role, 0)
        assert one.wait("trainer-0", 40) == 0, one.log("trainer-0")
        assert "Parameter server 0 goes on from version" in one.log("pserver-0")
    finally:
        one.close()


def until(holds, seconds=30.0):
    deadline = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < deadline, "it did not come to that"
        time.sleep(0.01)
