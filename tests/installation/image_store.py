"""Images built with buildah, in a storage that later builds on this machine reuse."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pip

from jobs.builds.local_bundle import pip_variables

ROOT = Path(__file__).parents[2]
BASE = "base/python-numpy:3.11"
_STORAGE = ROOT / "build" / "platform-images"
# Builds read the files that pip's settings name.
_SETTINGS = [name for name in pip_variables() if name.startswith("PIP_")]
_MOUNTS = {
    word for name in _SETTINGS for word in os.environ[name].split() if word.startswith("/") and Path(word).exists()
}


def buildah(*arguments: str) -> list[str]:
    """Return a command of buildah for the storage."""
    at = ["--root", str(_STORAGE / "root"), "--runroot", str(_STORAGE / "run"), "--storage-driver", "overlay"]
    return ["buildah", *at, *arguments]


def build_options(base: str) -> list[str]:
    """Return options of ``buildah build`` that ``docker build`` does not need: the base image is not in a registry."""
    arguments = [f"--build-arg=BASE={base}", *(f"--build-arg={name}={os.environ[name]}" for name in _SETTINGS)]
    mounts = [f"--volume={path}:{path}:ro" for path in sorted(_MOUNTS)]
    return ["--isolation=chroot", "--tls-verify=false", "--pull-never", "--layers", *mounts, *arguments]


def do(*arguments: str) -> str:
    """Run buildah; return its output. Fails with the output of both streams."""
    done = subprocess.run(buildah(*arguments), capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-3000:]
    return done.stdout


@contextmanager
def container(image: str, *options: str) -> Iterator[str]:
    """Return the name of a container of the image, which is removed at the end."""
    name = do("from", *options, image).strip()
    try:
        yield name
    finally:
        do("rm", name)


def base_with_pip(registry: str) -> str:
    """Return a replacement for ``python:3.11-slim``: Python with the C++ library, and pip."""
    name = "localhost/base-with-pip"
    with container(f"{registry}/{BASE}", "--tls-verify=false") as made:
        do("add", "--quiet", made, str(Path(pip.__file__).parent), "/usr/lib/python3/dist-packages/pip")
        do("commit", "--quiet", "--timestamp=0", made, name)
    return name
