"""The process of the controller: its command, probes, start and end."""

from __future__ import annotations

import threading
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from jobs.operator.__main__ import main
from jobs.operator.model import crd, names
from jobs.operator.run import health
from jobs.operator.run.controller import Options
from jobs.operator.run.manager import ProcessOptions, serve
from tests.jobs.operator.api_servers import LivingServer
from tests.jobs.operator.world import paddle_job, running
from tests.waiting import until


@contextmanager
def served(server: LivingServer, lease_namespace: str = "") -> Iterator[threading.Event]:
    """Run a controller in threads of this process until the end of the block."""
    stop, codes = threading.Event(), []
    process = ProcessOptions(lease_namespace, "127.0.0.1", 0)
    thread = threading.Thread(target=lambda: codes.append(serve(server, Options(), process, stop)), daemon=True)
    thread.start()
    try:
        yield stop
    finally:
        stop.set()
        thread.join(60)
    assert codes == [0]


def phase(server: LivingServer) -> str | None:
    return (server.of(names.KIND)[0].get("status") or {}).get("phase")


def test_a_controller_does_its_work_until_it_is_stopped() -> None:
    server = LivingServer()
    server.submit(paddle_job(ps=1, worker=2))
    with served(server):
        until("all pods are there", lambda: len(server.of("Pod")) == 3, 60)
        server.set_pod_status(running())
        until("the job runs", lambda: phase(server) == "Running", 60)


def test_a_controller_that_ends_lets_the_next_one_begin_at_once() -> None:
    server = LivingServer()
    with served(server, "system"):
        until("it leads", lambda: server.of("Lease") and server.of("Lease")[0]["spec"]["holderIdentity"], 60)
    assert server.of("Lease")[0]["spec"]["holderIdentity"] == ""
    server.submit(paddle_job(worker=1))
    with served(server, "system"):
        until("a pod is there", lambda: len(server.of("Pod")) == 1, 60)


def fetch(address: str) -> tuple[int, str]:
    try:
        with urllib.request.urlopen(address, timeout=30) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as refused:
        return refused.code, refused.read().decode()


def test_probes_return_the_problem() -> None:
    problem = [""]
    with health.server("127.0.0.1", 0, {"/healthz": health.check(lambda: problem[0])}) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        address = f"http://127.0.0.1:{server.server_address[1]}"
        assert fetch(f"{address}/healthz") == (200, "ok\n")
        problem[0] = "The API server is silent."
        assert fetch(f"{address}/healthz?verbose") == (503, "The API server is silent.\n")
        assert fetch(f"{address}/")[0] == 404
        server.shutdown()


def test_the_command_writes_the_definition(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["crd"]) == 0
    assert capsys.readouterr().out == crd.text()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["run", "--listen", "8080"], "is no address: write host:port, such as 127.0.0.1:8080"),
        (["run", "--workers", "0"], '"0" is no number from 1 to 256'),
        (["run", "--gang-seconds", "soon"], '"soon" is no number of seconds'),
        (["run", "--scheduling", "kueue"], "invalid choice: 'kueue'"),
    ],
)
def test_impossible_options_are_error_messages(
    arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        main(arguments)
    assert ended.value.code == 2
    assert message in capsys.readouterr().err


def test_without_a_cluster_the_command_reports_how_to_name_one(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["run", "--kubeconfig", str(tmp_path / "none")]) == 1
    problem = capsys.readouterr().err
    assert "There is no configuration of a cluster" in problem
    assert "--kubeconfig" in problem
