"""The platform's own images, built from their Dockerfiles and run: buildah, and the registry of REGISTRY."""

from __future__ import annotations

import http.client
import json
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from jobs.builds.images import build_request, plan, runtime_wheels
from tests.installation import image_store
from tests.servers.etcd_server import free_port
from tests.waiting import until

pytestmark = [pytest.mark.kube, pytest.mark.timeout(900)]

ROOT = Path(__file__).parents[3]


@pytest.fixture(scope="module")
def base() -> str:
    return image_store.base_with_pip(os.environ["REGISTRY"])


def built(file: str, base: str) -> str:
    """Build an image of the platform; return its name."""
    name = f"localhost/{Path(file).stem.lower()}"
    image_store.do("build", *image_store.build_options(base), "--file", str(ROOT / file), "--tag", name, str(ROOT))
    return name


@pytest.fixture(scope="module")
def portal(base: str) -> Iterator[str]:
    """A container of the portal's image."""
    with image_store.container(built("deploy/Dockerfile", base), "--pull-never") as name:
        yield name


def run(container: str, *command: str, options: tuple[str, ...] = ()) -> str:
    return image_store.do("run", "--isolation=chroot", *options, container, "--", *command)


def status_of(port: int, path: str) -> int:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=5)
    try:
        connection.request("GET", path)
        return connection.getresponse().status
    except OSError:
        return 0
    finally:
        connection.close()


@pytest.mark.invariant("The images of the platform run the portal and the controller.")
def test_the_portal_s_image_starts_the_portal_as_an_ordinary_account(portal: str) -> None:
    assert run(portal, "id", "-u").strip() == "10001"
    port = free_port()
    environment = {"PORT": str(port), "REGATTA_HOST": "127.0.0.1", "REGATTA_ADMIN_PASSWORD": "only-for-this-test"}
    options = [f"--env={name}={value}" for name, value in environment.items()]
    command = image_store.buildah("run", "--isolation=chroot", *options, portal, "--", "python3", "manage.py", "up")
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    try:
        until("the portal is ready", lambda: status_of(port, "/readyz") == 200 or process.poll() is not None, 120)
        assert process.poll() is None, process.stdout.read() if process.stdout else ""
        assert status_of(port, "/sign-in") == 200
        assert status_of(port, "/static/portal/app.css") == 200
    finally:
        process.terminate()
        process.wait(60)


def test_the_portal_s_image_has_the_time_zones_that_the_worker_needs(portal: str) -> None:
    run(portal, "python3", "-c", "import celery.bin.worker")


def test_the_portal_s_image_brings_the_tools_of_build_pods(portal: str) -> None:
    output = run(portal, "sh", "-c", "ls /opt/regatta-build; touch /regatta/x; echo $?")
    assert {"build.py", "jobs", "pip", "runtime", "wheels"} <= set(output.split())
    assert output.split()[-1] == "1"  # the account cannot change the code


_RUNTIME_STEP = """
import json, pathlib, sys
sys.path.insert(0, "/opt/regatta-build")
from jobs.builds.images import build_step
tool, root = pathlib.Path("/opt/regatta-build"), pathlib.Path("/tmp/elsewhere")
sys.exit(build_step.made(json.loads(sys.argv[1]), tool, root))
"""


@pytest.mark.invariant("The portal's image contains all packages of the runtime as wheels.")
def test_the_portal_s_image_has_all_packages_of_the_runtime(portal: str) -> None:
    """The step of a build runs in that image, which has the same base, and finds no index."""
    image = plan.Image(plan.Kind.RUNTIME, "registry/runtime:1", "base", "/tmp/target", runtime_wheels.packages())
    pip_settings = {"PIP_INDEX_URL": "http://127.0.0.1:9/simple", "PIP_RETRIES": "0"}
    order = build_request.Order((image,), "registry", False, "", 300, 1024**3, "pod", "", pip_settings)
    step = json.dumps(build_request.step(order, image, pip_settings, 300.0, str(plan.PLATFORM)))
    command = ("python3", "-I", "-c", _RUNTIME_STEP, step)
    output = run(portal, *command, options=("--user=0",))
    assert "from the portal's image, without a package index" in output
    assert "numpy" in output


@pytest.mark.invariant("The images of the platform run the portal and the controller.")
def test_the_controller_s_image_runs_the_controller(base: str) -> None:
    with image_store.container(built("deploy/kubernetes/controller.Dockerfile", base), "--pull-never") as controller:
        output = run(controller, "python3", "-m", "jobs.operator", "--help")
    assert "PaddleJob" in output
