"""What jobs on a real cluster need around it: an image with the runtime as it is here, and this machine's address."""

from __future__ import annotations

import compileall
import hashlib
import shutil
import socket
import tempfile
from importlib.util import find_spec
from pathlib import Path
from py_compile import PycInvalidationMode
from urllib.parse import urlsplit

import yaml

from jobs.images import layers
from jobs.images.registry import Registry
from runtime import contract

_BASE = "base/python-numpy:3.11"
# What the client of etcd needs, beside the standard library.
_PACKAGES = ("pyetcd", "grpc", "google.protobuf", "typing_extensions")


def own_address(kubeconfig: str) -> str:
    """This machine's address as the cluster sees it."""
    server = yaml.safe_load(Path(kubeconfig).read_text())["clusters"][0]["cluster"]["server"]
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as line:
        line.connect((urlsplit(server).hostname, 9))
        return str(line.getsockname()[0])


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
