"""Real builds of images in pods: the cluster of KUBECONFIG, the registry of REGISTRY, pip."""

from __future__ import annotations

import functools
import http.server
import os
import socket
import subprocess
import sys
import threading
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from urllib.parse import urlsplit

import pytest
import yaml
from pytest_django import Settings

from jobs.builds.images import launcher, plan
from jobs.models import CodeSnapshot
from jobs.operator.client.resources import PODS
from tests.jobs.builds.images.test_images import built, code, compiled_at_the_start, run_in, storage, wheel
from tests.jobs.operator.kube_cluster import Cluster

__all__ = ["code", "storage"]

pytestmark = [pytest.mark.kube, pytest.mark.django_db, pytest.mark.timeout(600)]

_ROOT = Path(__file__).parents[4]
_BUILDAH = ("buildah", "--storage-driver", "overlay")


@pytest.fixture(scope="session")
def packages_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Create a folder with the runtime's packages, which pods without internet cannot download, and a minimal one."""
    folder = tmp_path_factory.mktemp("shelf")
    packages = [requirement for image in launcher.plan_of("x", "x", ()).images for requirement in image.requirements]
    command = [sys.executable, "-m", "pip", "download", "-q", "--only-binary=:all:", "-d", str(folder), *packages]
    subprocess.run(command, check=True)
    wheel(folder, "tiny")
    return folder


@pytest.fixture(scope="session")
def index(packages_dir: Path) -> Iterator[str]:
    """Serve that folder over HTTP; yield the address for pods."""
    cluster = yaml.safe_load(Path(os.environ["KUBECONFIG"]).read_text())["clusters"][0]["cluster"]["server"]
    where = urlsplit(cluster)
    with socket.create_connection((str(where.hostname), where.port or 443)) as way:
        address = way.getsockname()[0]
    handler = functools.partial(http.server.SimpleHTTPRequestHandler, directory=str(packages_dir))
    server = http.server.ThreadingHTTPServer((address, 0), handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://{address}:{server.server_port}/"
    server.shutdown()


@pytest.fixture(scope="session")
def tools(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Push an image with the build tools in the path of the portal's image; return its name."""
    folder, storage = tmp_path_factory.mktemp("tools"), tmp_path_factory.mktemp("tools-storage")
    subprocess.run(
        [sys.executable, "-m", "jobs.builds.images.export_toolkit", str(folder / "made")], check=True, cwd=_ROOT
    )
    base, name = (
        f"{os.environ['REGISTRY']}/base/python:3.11",
        f"{os.environ['REGISTRY']}/tests/tools:{uuid.uuid4().hex}",
    )
    buildah = [*_BUILDAH, "--root", str(storage / "root"), "--runroot", str(storage / "run")]
    (folder / "Dockerfile").write_text(f"FROM {base}\nCOPY made /opt/regatta-build\n")
    build = ["build", "--isolation", "chroot", "--tls-verify=false", "-t", name, str(folder)]
    subprocess.run([*buildah, *build], check=True, capture_output=True)
    subprocess.run([*buildah, "push", "--tls-verify=false", name], check=True, capture_output=True)
    return name


@pytest.fixture(scope="session")
def prefix() -> str:
    return f"{os.environ['REGISTRY']}/tests/{uuid.uuid4().hex[:8]}"


@pytest.fixture(autouse=True)
def _installation(
    settings: Settings,
    tmp_path: Path,
    tmp_path_factory: pytest.TempPathFactory,
    prefix: str,
    index: str,
    tools: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    cluster = Cluster()
    cluster.define()
    cluster.kubectl("apply", "-f", str(_ROOT / "deploy" / "kubernetes" / "builds.yaml"), everywhere=True)
    cluster.until_allowed("portal", "create", PODS, "regatta-builds")
    settings.DATA_DIR = tmp_path / "data"
    settings.STORAGE_DIR = tmp_path / "storage"
    settings.IMAGE_REGISTRY, settings.REGISTRY_INSECURE = prefix, True
    settings.BASE_IMAGE = f"{os.environ['REGISTRY']}/base/python-numpy:3.11"
    settings.IMAGE_BUILDER = "pod"
    settings.BUILD_TOOLS_IMAGE = tools
    # The credentials and rights of the portal.
    settings.KUBECONFIG = cluster.kubeconfig_of("portal", tmp_path)
    for name in [
        name for name in os.environ if name.startswith("PIP_") or name in ("SSL_CERT_FILE", "REQUESTS_CA_BUNDLE")
    ]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", index)
    monkeypatch.setenv("PIP_TRUSTED_HOST", str(urlsplit(index).hostname))


def test_a_pod_without_rights_makes_the_image_of_a_job(code: Callable[..., CodeSnapshot], storage: Path) -> None:
    view = built(code(), "tiny")
    assert view.done is not None, (view.problem, view.log)
    assert any("Successfully installed tiny-1.0" in line for line in view.log)
    script = "import os, sys, tiny, numpy, runtime.dist; print(tiny.SIZE, os.getuid(), sys.prefix, os.listdir('.'))"
    output = run_in(view.done.image, storage, str(view.done.python), "-c", script)
    assert output.split()[:3] == ["1", str(plan.USER), str(plan.ENVIRONMENT)]
    assert "train.py" in output
    assert compiled_at_the_start(view.done.image, storage, str(launcher.PYTHON), "json, numpy, runtime.agent") == []
    failed = built(code(), "tiny==2.0")
    assert "No matching distribution found for tiny==2.0" in failed.problem
    left = Cluster().kubectl("-n", "regatta-builds", "get", "pods,configmaps", "-o", "name", everywhere=True)
    assert [line for line in left.splitlines() if "build-" in line] == []


def test_a_base_image_that_nodes_cannot_pull_is_reported(code: Callable[..., CodeSnapshot], settings: Settings) -> None:
    settings.BASE_IMAGE = f"{os.environ['REGISTRY']}/base/nothing:1"
    assert "ImagePullBackOff" in built(code()).problem
