"""What jobs on a real cluster need around it: an image with the runtime as it is here, and this machine's address."""

from __future__ import annotations

import compileall
import hashlib
import shutil
import socket
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from importlib.util import find_spec
from pathlib import Path
from py_compile import PycInvalidationMode
from urllib.parse import urlsplit

import yaml

from jobs.images import layers
from jobs.images.registry import Registry
from jobs.kubernetes.api import Refusal
from jobs.kubernetes.namespaces import name_of
from runtime import contract
from tests.end_to_end.house import House
from tests.jobs.kubernetes.cluster import Cluster

_BASE = "base/python-numpy:3.11"
# What the client of etcd needs, beside the standard library.
_PACKAGES = ("pyetcd", "grpc", "google.protobuf", "typing_extensions")


def own_address(kubeconfig: str) -> str:
    """This machine's address as the cluster sees it."""
    server = yaml.safe_load(Path(kubeconfig).read_text())["clusters"][0]["cluster"]["server"]
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as line:
        line.connect((urlsplit(server).hostname, 9))
        return str(line.getsockname()[0])


@contextmanager
def house_on(cluster: Cluster, directory: Path, prefix: str, **settings: str) -> Iterator[House]:
    """A portal on this machine whose jobs run on the cluster. Its admin's jobs are in ``cluster.namespace``, which the
    portal makes, and which goes at the end."""
    cluster.define()
    cluster.namespace = name_of("admin", prefix)
    house = House(
        directory,
        host=own_address(cluster.kubeconfig),
        REGATTA_BACKEND="kubernetes",
        REGATTA_KUBECONFIG=cluster.kubeconfig,
        REGATTA_KUBERNETES_PREFIX=prefix,
        REGATTA_SIGN_IN_RATE="1000/min",
        **settings,
    )
    try:
        house.start()
        yield house
        house.remove()
    finally:
        house.kill_all()
        with suppress(Refusal):  # it was never made, or is gone
            cluster.api.call("DELETE", f"/api/v1/namespaces/{cluster.namespace}")


def runtime_image(registry: str) -> str:
    """An image with the runtime in /opt/regatta; made if the registry has none of this content."""
    with tempfile.TemporaryDirectory() as room:
        sources = _lay_out(Path(room))
        reference = f"{registry}/tests/runtime:{_digest(Path(room))}"
        place = Registry(registry, insecure=True)
        if not place.has_manifest("tests/runtime", reference.rpartition(":")[2]):
            path = {"Env": ["PATH=/usr/local/bin:/usr/bin:/bin", "PYTHONPATH=/opt/regatta/lib"]}
            layers.append(place, f"{registry}/{_BASE}", place, reference, sources, by="tests", settings=path)
        return reference


def _lay_out(room: Path) -> dict[str, Path]:
    library, programs = room / "lib", room / "bin"
    shutil.copytree(Path(contract.__file__).parent, library / "runtime", ignore=_CACHES)
    for package in _PACKAGES:
        found = find_spec(package)
        assert found is not None and found.origin is not None, package
        source, target = Path(found.origin), library.joinpath(*package.split("."))
        if found.submodule_search_locations:
            shutil.copytree(source.parent, target, ignore=_CACHES)
        else:
            shutil.copy(source, target.with_suffix(".py"))
    # Where it runs the root is read-only: nothing that is compiled there is kept for the next start.
    compiled = compileall.compile_dir(
        library, ddir="/opt/regatta/lib", quiet=1, invalidation_mode=PycInvalidationMode.UNCHECKED_HASH
    )
    assert compiled, "all of it can be compiled"
    programs.mkdir()
    (programs / "python").symlink_to("/usr/bin/python3")
    return {"/opt/regatta/lib": library, "/opt/regatta/bin": programs}


_CACHES = shutil.ignore_patterns("__pycache__")


def _digest(room: Path) -> str:
    content = hashlib.sha256()
    for path in sorted(room.rglob("*")):
        content.update(str(path.relative_to(room)).encode())
        if path.is_symlink():
            content.update(str(path.readlink()).encode())
        elif path.is_file():
            content.update(path.read_bytes())
    return content.hexdigest()[:32]
