"""Builds of images that no job waits for any more: a real build program, a registry and an API server as fakes."""

from __future__ import annotations

import fcntl
import http.server
import json
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from pytest_django import Settings

from jobs.builds import builders, code_snapshots
from jobs.builds.images import build_request, launcher, pod_builder
from jobs.builds.images.plan import Plan
from jobs.lifecycle.states import JobState
from jobs.models import CodeSnapshot, Job
from jobs.spec.model import JobSpec
from tests.waiting import until

pytestmark = pytest.mark.django_db
Submit = Callable[..., Job]


class ClusterWithEndlessBuilds:
    """API server and empty registry on one address. Its pods run until they are deleted."""

    def __init__(self) -> None:
        self.pods: set[str] = set()
        self.config_maps: set[str] = set()
        self._server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        threading.Thread(target=self._server.serve_forever, daemon=True).start()
        self.host = f"127.0.0.1:{self._server.server_port}"

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()

    def write_kubeconfig(self, file: Path) -> str:
        cluster = {"clusters": [{"name": "c", "cluster": {"server": f"http://{self.host}"}}]}
        context = {"contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}], "current-context": "c"}
        file.write_text(yaml.safe_dump({**cluster, **context, "users": [{"name": "u", "user": {}}]}))
        return str(file)

    def answer(self, method: str, path: str, body: dict[str, Any]) -> tuple[int, dict[str, Any]]:
        kind, _, name = path.partition("/namespaces/regatta-builds/")[2].partition("/")
        there = {"pods": self.pods, "configmaps": self.config_maps}.get(kind)
        if there is None:
            return 404, {}
        if method == "POST":
            there.add(body["metadata"]["name"])
        elif name not in there:
            return 404, {"kind": "Status", "message": "not found"}
        elif method == "DELETE":
            there.remove(name)
        return 200, {"status": {"phase": "Running"}}

    def _handler(self) -> type[http.server.BaseHTTPRequestHandler]:
        cluster = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def _answer(self) -> None:
                length = int(self.headers.get("Content-Length") or 0)
                body = json.loads(self.rfile.read(length) or b"{}")
                status, answer = cluster.answer(self.command, self.path.partition("?")[0], body)
                self.send_response(status)
                self.end_headers()
                self.wfile.write(json.dumps(answer).encode())

            do_GET = do_HEAD = do_POST = do_DELETE = _answer

            def log_message(self, *arguments: object) -> None:
                """Print nothing."""

        return Handler


@pytest.fixture
def cluster(settings: Settings, tmp_path: Path) -> Iterator[ClusterWithEndlessBuilds]:
    server = ClusterWithEndlessBuilds()
    settings.DATA_DIR = tmp_path / "data"
    settings.STORAGE_DIR = tmp_path / "storage"
    settings.CLUSTER_BACKEND, settings.IMAGE_BUILDER = "kubernetes", build_request.POD
    settings.IMAGE_REGISTRY, settings.REGISTRY_INSECURE = f"{server.host}/regatta", True
    settings.KUBECONFIG = server.write_kubeconfig(tmp_path / "kubeconfig")
    yield server
    launcher.end_all()
    server.close()


@pytest.fixture
def image_plan(cluster: ClusterWithEndlessBuilds) -> Plan:
    """Start the build of a job's images; return its plan as soon as the pod runs."""
    packed = code_snapshots.pack({"train.py": "print(1)\n"})
    code_snapshots.keep(packed)
    snapshot = CodeSnapshot.objects.create(pk=packed.digest, size=len(packed.body))
    found = launcher.plan_of("team", snapshot.pk, ("tiny",))
    launcher.build(found, snapshot)
    until("the pod runs", lambda: cluster.pods, story=lambda: launcher.build(found, snapshot).log)
    return found


def workers(image_plan: Plan) -> list[Path]:
    """Return the ``/proc`` entries of the build program."""
    folder = str(launcher.images_directory() / image_plan.tag).encode()
    return [line.parent for line in Path("/proc").glob("[0-9]*/cmdline") if folder in _read(line)]


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError:
        return b""


@pytest.mark.processes
def test_the_pod_of_a_build_that_is_given_up_is_deleted(cluster: ClusterWithEndlessBuilds, image_plan: Plan) -> None:
    assert cluster.pods == {pod_builder.pod_name(image_plan.images[0])}
    launcher.give_up(image_plan)
    until("the build program has ended", lambda: not workers(image_plan), 5)
    assert (cluster.pods, cluster.config_maps) == (set(), set())
    assert not (launcher.images_directory() / image_plan.tag / build_request.OUTCOME).exists()


@pytest.mark.processes
def test_a_build_that_was_given_up_begins_again_for_the_next_job(
    cluster: ClusterWithEndlessBuilds, image_plan: Plan
) -> None:
    launcher.give_up(image_plan)
    until("the build program has ended", lambda: not workers(image_plan), 5)
    snapshot = CodeSnapshot.objects.get()
    # Again and again like the reconciler: a program that ends may still hold the lock of the build.
    until("the pod runs again", lambda: launcher.build(image_plan, snapshot) and cluster.pods)


# --- Which builds are given up ---------------------------------------------------------------------------------------
def is_given_up(job: Job) -> bool:
    """Return whether the end of the job ends its build, which another process seems to run."""
    spec = JobSpec.from_json(job.spec)
    folder = launcher.images_directory() / launcher.plan_of("team", job.snapshot_id, spec.requirements).tag
    folder.mkdir(parents=True)
    with (folder / build_request.LOCK).open("a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        builders.of(spec).give_up(job, spec)
    return (folder / build_request.GIVEN_UP).exists()


def in_building(submit: Submit, **fields: Any) -> Job:
    job = submit(**{"requirements": ["tiny"], **fields})
    Job.objects.filter(pk=job.pk).update(state=JobState.BUILDING)
    return job


def test_a_build_that_no_other_job_needs_is_given_up(cluster: ClusterWithEndlessBuilds, submit: Submit) -> None:
    job = in_building(submit)
    in_building(submit, name="other", requirements=["huge"])
    submit(name="waiting", requirements=["tiny"])
    assert is_given_up(job)


@pytest.mark.parametrize("files", [{}, {"files": {"train.py": "print('other')\n"}}], ids=["same code", "other code"])
def test_a_build_of_packages_that_another_job_waits_for_goes_on(
    cluster: ClusterWithEndlessBuilds, submit: Submit, files: dict[str, Any]
) -> None:
    job = in_building(submit)
    in_building(submit, name="other", **files)
    assert not is_given_up(job)
