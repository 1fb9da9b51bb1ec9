"""The platform's own images, built from their Dockerfiles and run: buildah, and the registry of REGISTRY."""

from __future__ import annotations

import http.client
import json
import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pip
import pytest

from jobs.builds.images import build_request, plan, runtime_wheels
from jobs.builds.local_bundle import pip_variables
from tests.servers.etcd_server import free_port
from tests.waiting import until

pytestmark = [pytest.mark.kube, pytest.mark.timeout(900)]

ROOT = Path(__file__).parents[3]
# The builds must be able to read files that pip's settings name.
_SETTINGS = [name for name in pip_variables() if name.startswith("PIP_")]
_MOUNTS = {
    word for name in _SETTINGS for word in os.environ[name].split() if word.startswith("/") and Path(word).exists()
}


class Images:
    """Builds and runs images, in a storage of its own."""

    def __init__(self, storage: Path) -> None:
        self._at = ["buildah", "--root", str(storage / "root"), "--runroot", str(storage / "run")]
        self._at += ["--storage-driver", "overlay"]

    def do(self, *arguments: str) -> str:
        done = subprocess.run([*self._at, *arguments], capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-3000:]
        return done.stdout

    def build(self, file: str, tag: str, base: str) -> None:
        arguments = [f"--build-arg=BASE={base}", *(f"--build-arg={name}={os.environ[name]}" for name in _SETTINGS)]
        mounts = [f"--volume={path}:{path}:ro" for path in _MOUNTS]
        access = ["--isolation=chroot", "--tls-verify=false", "--pull-never"]
        self.do("build", *access, *mounts, *arguments, "--file", str(ROOT / file), "--tag", tag, str(ROOT))

    def begin(self, name: str, *command: str, environment: dict[str, str]) -> subprocess.Popen[str]:
        environment_options = [f"--env={key}={value}" for key, value in environment.items()]
        run = [*self._at, "run", "--isolation=chroot", *environment_options, name, "--", *command]
        return subprocess.Popen(run, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


@pytest.fixture(scope="module")
def images(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Images]:
    found = Images(tmp_path_factory.mktemp("platform-images"))
    yield found
    found.do("rm", "--all")


@pytest.fixture(scope="module")
def base(images: Images, tmp_path_factory: pytest.TempPathFactory) -> str:
    """A replacement for ``python:3.11-slim``: Python with the C++ library, and pip."""
    folder = tmp_path_factory.mktemp("pip") / "pip"
    shutil.copytree(Path(pip.__file__).parent, folder)
    images.do("from", "--name", "base", "--tls-verify=false", f"{os.environ['REGISTRY']}/base/python-numpy:3.11")
    images.do("copy", "base", str(folder), "/usr/lib/python3/dist-packages/pip")
    images.do("commit", "base", "localhost/base-with-pip")
    return "localhost/base-with-pip"


@pytest.fixture(scope="module")
def portal(images: Images, base: str) -> str:
    """A container of the portal's image."""
    images.build("deploy/Dockerfile", "localhost/portal", base)
    images.do("from", "--name", "portal", "--pull-never", "localhost/portal")
    return "portal"


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
def test_the_portal_s_image_starts_the_portal_as_an_ordinary_account(images: Images, portal: str) -> None:
    assert images.do("run", "--isolation=chroot", portal, "--", "id", "-u").strip() == "10001"
    port = free_port()
    environment = {"PORT": str(port), "REGATTA_HOST": "127.0.0.1", "REGATTA_ADMIN_PASSWORD": "only-for-this-test"}
    process = images.begin(portal, "python3", "manage.py", "up", environment=environment)
    try:
        until("the portal is ready", lambda: status_of(port, "/readyz") == 200 or process.poll() is not None, 120)
        assert process.poll() is None, process.stdout.read() if process.stdout else ""
        assert status_of(port, "/sign-in") == 200
        assert status_of(port, "/static/portal/app.css") == 200
    finally:
        process.terminate()
        process.wait(60)


def test_the_portal_s_image_has_the_time_zones_that_the_worker_needs(images: Images, portal: str) -> None:
    images.do("run", "--isolation=chroot", portal, "--", "python3", "-c", "import celery.bin.worker")


def test_the_portal_s_image_brings_the_tools_of_build_pods(images: Images, portal: str) -> None:
    output = images.do(
        "run", "--isolation=chroot", portal, "--", "sh", "-c", "ls /opt/regatta-build; touch /regatta/x; echo $?"
    )
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
def test_the_portal_s_image_has_all_packages_of_the_runtime(images: Images, portal: str) -> None:
    """The step of a build runs in that image, which has the same base, and finds no index."""
    image = plan.Image(plan.Kind.RUNTIME, "registry/runtime:1", "base", "/tmp/target", runtime_wheels.packages())
    pip_settings = {"PIP_INDEX_URL": "http://127.0.0.1:9/simple", "PIP_RETRIES": "0"}
    order = build_request.Order((image,), "registry", False, "", 300, 1024**3, "pod", "", pip_settings)
    step = json.dumps(build_request.step(order, image, pip_settings, 300.0, str(plan.PLATFORM)))
    command = ("python3", "-I", "-c", _RUNTIME_STEP, step)
    output = images.do("run", "--isolation=chroot", "--user=0", portal, "--", *command)
    assert "from the portal's image, without a package index" in output
    assert "numpy" in output


@pytest.mark.invariant("The images of the platform run the portal and the controller.")
def test_the_controller_s_image_runs_the_controller(images: Images, base: str) -> None:
    images.build("deploy/kubernetes/controller.Dockerfile", "localhost/controller", base)
    images.do("from", "--name", "controller", "--pull-never", "localhost/controller")
    output = images.do("run", "--isolation=chroot", "controller", "--", "python3", "-m", "jobs.operator", "--help")
    assert "PaddleJob" in output
