"""Jobs on separate networks: they train, and cannot reach the machine. As root and as an ordinary user."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from runtime.messages import isolation as messages
from tests.end_to_end.support import code
from tests.end_to_end.support.portal import RunningPortal
from tests.end_to_end.support.processes import kill, of_attempt
from tests.messages import mentions
from tests.waiting import until

pytestmark = [pytest.mark.processes, pytest.mark.timeout(300)]
END_SECONDS = 90.0
USERS = ["root", "ordinary"] if os.geteuid() == 0 else ["ordinary"]

CONNECTS = """\
import socket
for port in ({port}, 80):
    try:
        socket.create_connection(("127.0.0.1", port), 5).close()
        print("reached", port, flush=True)
    except OSError as error:
        print("refused", port, error.strerror, flush=True)
"""


@pytest.fixture(scope="module", params=USERS)
def networked(request: pytest.FixtureRequest) -> Iterator[RunningPortal]:
    # An ordinary user cannot enter directories that pytest creates for root.
    with tempfile.TemporaryDirectory(prefix="regatta-network-", dir="/srv" if os.geteuid() == 0 else None) as directory:
        Path(directory).chmod(0o755)
        ordinary = request.param == "ordinary"
        running_portal = RunningPortal(Path(directory) / "data", ordinary=ordinary, REGATTA_LOCAL_NETWORK="private")
        with running_portal.open():
            yield running_portal


def test_a_job_trains_on_a_network_of_its_own_and_is_restarted_on_it(networked: RunningPortal) -> None:
    assert mentions(networked.printed(), messages.LAYER_NETWORK)
    with networked.client() as portal:
        spec = code.shortened(portal.examples.get("digits"), passes=20)
        spec["roles"]["trainer"]["replicas"] = spec["roles"]["pserver"]["replicas"] = 2
        job = portal.jobs.submit({**spec, "files": {"train.py": CONNECTS.format(port=networked.port) + code_of(spec)}})
        until("it trains", lambda: "cost" in portal.jobs.metrics.series(job.id, "cost"), END_SECONDS)
        (attempt,) = networked.attempts(job.id)
        for process in networked.replica(job.id, "pserver-1"):
            kill(process.pid)
        ended = portal.jobs.wait(job.id, END_SECONDS)
        lines = {line.text for line in portal.jobs.logs.read(job.id, replica="trainer-0")}
        assert ended.state == "SUCCEEDED", (ended, lines)
        assert ended.attempt == 1
        assert f"refused {networked.port} Connection refused" in lines
        assert not any(text.startswith("reached") for text in lines)
        until("nothing of it is left", lambda: not of_attempt(attempt) and not keepers(networked), 10)


def code_of(spec: dict[str, dict[str, str]]) -> str:
    return spec["files"]["train.py"]


def keepers(running_portal: RunningPortal) -> list[str]:
    return [one.command for one in running_portal.processes() if "runtime.isolation.network" in one.command]


def test_jobs_are_on_different_networks(networked: RunningPortal) -> None:
    """Both listen on the same port of the loopback device."""
    listens = code.INIT + "import socket, time\nserver = socket.create_server(('127.0.0.1', 20007))\nprint('up')\n"
    with networked.client() as portal:
        jobs = [
            portal.jobs.submit(code.job(f"listens-{n}", listens + "time.sleep(600)\n", pservers=1)) for n in range(2)
        ]
        for job in jobs:
            until(
                "it listens", lambda job=job: "up" in [one.text for one in portal.jobs.logs.read(job.id)], END_SECONDS
            )
            until("it runs", lambda job=job: portal.jobs.get(job.id).state == "RUNNING", END_SECONDS)
        for job in jobs:
            portal.jobs.cancel(job.id)
            assert portal.jobs.wait(job.id, END_SECONDS).state == "CANCELLED"
