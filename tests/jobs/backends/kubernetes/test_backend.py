"""The Kubernetes backend on a real cluster: the contract of all backends, and its own tests. ``make test-kube``."""

from __future__ import annotations

import io
import tarfile
import threading
import uuid
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from jobs.backends.base import AttemptRef, ClusterBackend, LaunchFailed, LaunchPlan, Phase
from jobs.backends.kubernetes.backend import SECRETS, KubernetesBackend
from jobs.backends.kubernetes.manifests import Cluster as Site
from jobs.backends.kubernetes.manifests import job_name, pod_name
from jobs.messages import cluster as messages
from jobs.operator.client.api import ApiServer, connect
from runtime import contract
from runtime.messages import Template
from tests.contracts import backend_contract
from tests.contracts.backend_contract import NO_GRACE, BackendContract, all_exited, all_running, make_plan
from tests.jobs.operator.environment import own_address, runtime_image
from tests.jobs.operator.kube_cluster import Cluster, Controller
from tests.messages import mentions, pattern
from tests.runtime.agent.ingest_server import IngestServer

pytestmark = [pytest.mark.kube, pytest.mark.timeout(600)]

# Each start of a replica is reported to this machine.
MARK = """
import os
def mark():
    import urllib.request
    urllib.request.urlopen({url!r} + os.environ[{replica!r}], b"").read()
"""
SECONDS = 180.0
# Much less than the grace of 30 s, which a call that waits would take.
AT_ONCE_SECONDS = 10.0


class Starts:
    """A file to which every start appends the name of its replica."""

    def __init__(self, host: str) -> None:
        lines: list[str] = []

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                lines.append(self.path.lstrip("/"))
                self.send_response(204)
                self.end_headers()

            def log_message(self, format: str, *args: Any) -> None:
                pass

        self._messages = lines
        self._server = ThreadingHTTPServer((host, 0), Handler)
        self.url = f"http://{host}:{self._server.server_port}/"
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def read_text(self) -> str:
        return "\n".join(self._messages)

    def exists(self) -> bool:
        return bool(self._messages)

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()


@pytest.fixture(scope="module")
def controller(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Controller]:
    cluster = Cluster()
    cluster.define()
    process = Controller(cluster.kubeconfig_of_the_controller(tmp_path_factory.mktemp("controller")))
    process.start()
    yield process
    assert process.stop() == 0


@pytest.fixture(scope="module")
def cluster(controller: Controller) -> Iterator[Cluster]:
    with Cluster().with_namespace() as found:
        yield found


@pytest.fixture(scope="module")
def site(cluster: Cluster) -> Site:
    return Site(image=runtime_image(cluster.registry))


@pytest.fixture(scope="module")
def account(cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> str:
    """Return the kubeconfig of the portal's account. The test's own look at the cluster is the administrator's."""
    return cluster.admit_the_portal(tmp_path_factory.mktemp("portal"))


@pytest.fixture(scope="module")
def api(account: str) -> ApiServer:
    return connect(account, 4)


@pytest.fixture
def backend(api: ApiServer, site: Site) -> KubernetesBackend:
    return KubernetesBackend(api, site)


@pytest.fixture
def reopen(account: str, site: Site) -> Callable[[], ClusterBackend]:
    return lambda: KubernetesBackend(connect(account, 2), site)


@pytest.fixture
def portal(cluster: Cluster) -> Iterator[IngestServer]:
    server = IngestServer(own_address(cluster.kubeconfig))
    yield server
    server.close()


@pytest.fixture
def marker(cluster: Cluster) -> Iterator[Starts]:
    starts = Starts(own_address(cluster.kubeconfig))
    yield starts
    starts.close()


@pytest.fixture
def plan(
    cluster: Cluster, portal: IngestServer, marker: Starts, backend: KubernetesBackend
) -> Iterator[Callable[[str], LaunchPlan]]:
    launched: list[LaunchPlan] = []

    def make(script: str) -> LaunchPlan:
        code = MARK.format(url=marker.url, replica=contract.REPLICA) + script
        portal.given["code"] = tar("train.py", code)
        environment = {contract.INGEST_URL: portal.url, contract.COORDINATION: "sqlite:////regatta/store.sqlite3"}
        made = make_plan(Path(), environment, uuid.uuid4().hex)
        small = (replace(one, command=("python3", "train.py"), cpu=0.05, memory=192 * 2**20) for one in made.replicas)
        ref = replace(made.ref, namespace=cluster.namespace)
        launched.append(replace(made, ref=ref, namespace=cluster.namespace, replicas=tuple(small)))
        return launched[-1]

    yield make
    for one in launched:
        backend.stop(one.ref, NO_GRACE)


def tar(name: str, text: str) -> bytes:
    target = io.BytesIO()
    with tarfile.open(fileobj=target, mode="w") as archive:
        entry = tarfile.TarInfo(name)
        entry.size = len(text.encode())
        archive.addfile(entry, io.BytesIO(text.encode()))
    return target.getvalue()


@pytest.fixture(autouse=True)
def _patience(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pods start and end in seconds, and each call is several requests to the API server."""
    monkeypatch.setattr(backend_contract, "PATIENCE_SECONDS", SECONDS)
    monkeypatch.setattr(backend_contract, "AT_ONCE_SECONDS", AT_ONCE_SECONDS)


def wait_until(backend: ClusterBackend, ref: AttemptRef, condition: Callable[[Any], bool]) -> Any:
    return backend_contract.wait_until(backend, ref, condition)


class TestKubernetesBackend(BackendContract):
    """The contract of all backends, of which one test is timed."""


# --- Kubernetes only -------------------------------------------------------------------------------------------------
def test_cleanup_deletes_the_attempt_with_its_secret(
    backend: KubernetesBackend, plan: Callable[[str], LaunchPlan], cluster: Cluster
) -> None:
    attempt = plan(BackendContract.SHORT)
    backend.launch(attempt)
    wait_until(backend, attempt.ref, all_exited)
    backend.cleanup(attempt.ref)
    assert backend.observe(attempt.ref).gone
    backend.cleanup(attempt.ref)
    assert not cluster.is_there(SECRETS.path(cluster.namespace, job_name(attempt.ref.attempt_id)))


def test_an_attempt_that_runs_is_not_cleaned_up(backend: KubernetesBackend, plan: Callable[[str], LaunchPlan]) -> None:
    attempt = plan(BackendContract.ENDLESS)
    backend.launch(attempt)
    wait_until(backend, attempt.ref, all_running)
    backend.cleanup(attempt.ref)
    assert all_running(backend.observe(attempt.ref))


# Longer than the grace of a pod of the plan: a second, and the time in which the agent sends its last lines.
LONG_FAREWELL = "import signal, time; signal.signal(15, lambda *_: (time.sleep(12), exit(7))); mark(); time.sleep(600)"


def test_a_longer_grace_reaches_the_node_and_the_agent(
    backend: KubernetesBackend, plan: Callable[[str], LaunchPlan], portal: IngestServer, marker: Starts
) -> None:
    attempt = plan(LONG_FAREWELL)
    portal.given["stop"] = b'{"grace": 60}'
    backend.launch(attempt)
    wait_until(backend, attempt.ref, lambda view: all_running(view) and len(marker.read_text().split()) == 2)
    backend.stop(attempt.ref, timedelta(seconds=60))
    wait_until(backend, attempt.ref, all_exited)
    assert [one["code"] for one in portal.reports if one["phase"] == "exited"] == [7, 7]


def test_a_deleted_pod_is_observed_as_killed_and_stays_deleted(
    backend: KubernetesBackend, plan: Callable[[str], LaunchPlan], cluster: Cluster
) -> None:
    attempt = plan(BackendContract.ENDLESS)
    backend.launch(attempt)
    wait_until(backend, attempt.ref, all_running)
    cluster.kubectl("delete", "pod", pod_name(attempt.ref.attempt_id, "trainer-1"), "--wait=false")
    view = wait_until(backend, attempt.ref, lambda view: view.replicas[1].phase is Phase.EXITED)
    assert (view.replicas[1].start_number, view.replicas[0].phase) == (1, Phase.RUNNING)


def test_an_attempt_goes_when_its_paddle_job_is_deleted(
    backend: KubernetesBackend, plan: Callable[[str], LaunchPlan], cluster: Cluster
) -> None:
    attempt = plan(BackendContract.ENDLESS)
    backend.launch(attempt)
    wait_until(backend, attempt.ref, all_running)
    cluster.kubectl("delete", "paddlejobs", job_name(attempt.ref.attempt_id), "--wait=false")
    wait_until(backend, attempt.ref, lambda view: view.gone)
    backend.scale(attempt.ref, "trainer", 3)
    backend.restart(attempt.ref, "trainer-0", 2)


def test_a_replica_restarts_after_its_place_was_taken_away(
    backend: KubernetesBackend, plan: Callable[[str], LaunchPlan], cluster: Cluster
) -> None:
    attempt = plan(BackendContract.ENDLESS)
    backend.launch(attempt)
    wait_until(backend, attempt.ref, all_running)
    cluster.kubectl("scale", "pdj", job_name(attempt.ref.attempt_id), "--replicas=1")
    wait_until(backend, attempt.ref, lambda view: view.replicas[1].phase is Phase.EXITED)
    backend_contract.restart(backend, attempt.ref, "trainer-1", 2)
    view = wait_until(backend, attempt.ref, all_running)
    assert [one.start_number for one in view.replicas] == [1, 2]


@pytest.mark.timed
@pytest.mark.parametrize(
    ("change", "template"),
    [
        ({"image": "{registry}/none:1"}, messages.IMAGE_NOT_PULLED),
        ({"cpu": 900.0}, messages.UNSCHEDULABLE),
    ],
)
def test_the_reason_why_pods_do_not_start_is_reported_within_ten_seconds(
    backend: KubernetesBackend,
    plan: Callable[[str], LaunchPlan],
    cluster: Cluster,
    change: dict[str, Any],
    template: Template,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    attempt = plan(BackendContract.SHORT)
    if "image" in change:
        attempt = replace(attempt, image=change["image"].format(registry=cluster.registry))
    else:
        attempt = replace(attempt, replicas=tuple(replace(one, cpu=change["cpu"]) for one in attempt.replicas))
    monkeypatch.setattr(backend_contract, "PATIENCE_SECONDS", 10.0)
    backend.launch(attempt)
    wait_until(backend, attempt.ref, lambda view: all(mentions(one.why, template) for one in view.replicas))


@pytest.mark.timed
def test_a_refusal_by_quota_is_reported_within_ten_seconds(
    backend: KubernetesBackend,
    plan: Callable[[str], LaunchPlan],
    cluster: Cluster,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    quota = {"metadata": {"name": "none"}, "spec": {"hard": {"requests.memory": "1Mi"}}}
    path = f"/api/v1/namespaces/{cluster.namespace}/resourcequotas"
    cluster.api.call("POST", path, quota)
    try:
        cluster.until_enforced("none")
        attempt = plan(BackendContract.SHORT)
        monkeypatch.setattr(backend_contract, "PATIENCE_SECONDS", 10.0)
        backend.launch(attempt)
        wait_until(backend, attempt.ref, lambda view: all("exceeded quota" in one.why for one in view.replicas))
    finally:
        cluster.api.call("DELETE", f"{path}/none")


def test_a_missing_namespace_is_reported_with_what_to_do(
    backend: KubernetesBackend, plan: Callable[[str], LaunchPlan]
) -> None:
    attempt = plan(BackendContract.SHORT)
    elsewhere = replace(attempt, namespace="nobodys", ref=replace(attempt.ref, namespace="nobodys"))
    with pytest.raises(LaunchFailed, match=pattern(messages.CLUSTER_NOT_PREPARED, name="nobodys")) as refused:
        backend.launch(elsewhere)
    assert not refused.value.retryable


# Access of a job's code to its environment.
CURIOUS = """
import os, pathlib, socket, stat
def look(path):
    try:
        return pathlib.Path(path).read_bytes()
    except OSError as error:
        return type(error).__name__.encode()
print("token in environment", b"attempt-token" in look("/proc/self/environ"))
print("agent's environment", look(f"/proc/{os.getppid()}/environ").decode())
print("service account", os.path.exists("/var/run/secrets/kubernetes.io"))
print("user", os.getuid(), os.getgid())
status = look("/proc/self/status").decode()
print([line for line in status.splitlines() if line.startswith(("CapEff", "NoNewPrivs", "Seccomp:"))])
for place in ("/opt/regatta/x", "/etc/x", "/usr/x"):
    try:
        open(place, "w")
        print("could write", place)
    except OSError as error:
        print(place, type(error).__name__)
open("own", "w").write("x")
try:
    os.kill(1, 9)
    print("sent")
except OSError as error:
    print("kill", type(error).__name__)
import time; time.sleep(1)
print("the agent runs", os.getppid() == 1)
"""


@pytest.mark.invariant("User code in a pod has no service account token and no rights.")
def test_a_job_s_code_has_no_token_and_no_rights(
    backend: KubernetesBackend, plan: Callable[[str], LaunchPlan], portal: IngestServer
) -> None:
    attempt = plan(CURIOUS)
    backend.launch(replace(attempt, replicas=attempt.replicas[:1]))
    wait_until(backend, attempt.ref, all_exited)
    lines = portal.texts("stdout")
    assert "token in environment False" in lines
    assert "agent's environment PermissionError" in lines
    assert "service account False" in lines
    assert "user 10001 10001" in lines
    assert "['CapEff:\\t0000000000000000', 'NoNewPrivs:\\t1', 'Seccomp:\\t2']" in lines
    assert not [line for line in lines if line.startswith("could write")]
    assert "the agent runs True" in lines


@pytest.mark.invariant("The API server refuses every connection from the pod of a job.")
def test_the_api_server_refuses_requests_from_a_pod(
    backend: KubernetesBackend, plan: Callable[[str], LaunchPlan], portal: IngestServer
) -> None:
    script = """
import ssl, urllib.error, urllib.request
unchecked = ssl._create_unverified_context()
for host in ("kubernetes.default.svc", "10.96.0.1"):
    try:
        print(urllib.request.urlopen(f"https://{host}/api/v1/secrets", context=unchecked, timeout=5).status)
    except urllib.error.HTTPError as error:
        print("status", error.code)
    except OSError as error:
        print("unreachable", error)
"""
    attempt = plan(script)
    backend.launch(replace(attempt, replicas=attempt.replicas[:1]))
    wait_until(backend, attempt.ref, all_exited)
    assert len(portal.texts("stdout")) == 2
    assert all(line.startswith(("status 401", "status 403", "unreachable")) for line in portal.texts("stdout"))


@pytest.mark.invariant("A PaddleJob contains no secret.")
def test_the_specification_holds_no_secret(
    backend: KubernetesBackend, plan: Callable[[str], LaunchPlan], cluster: Cluster
) -> None:
    attempt = plan(BackendContract.ENDLESS)
    backend.launch(attempt)
    wait_until(backend, attempt.ref, all_running)
    shown = cluster.kubectl("get", "paddlejobs,pods,configmaps,events", "-o", "yaml")
    assert "attempt-token" not in shown
