"""Wheels of the runtime's packages in the portal's image: ``python -m jobs.builds.images.runtime_wheels <folder>``.

Builds install the runtime from them without a package index, if the base image has the Python of the portal's image.
"""

from __future__ import annotations

import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

# Packages of the runtime, in the versions of the portal.
PACKAGES = ("numpy", "etcd-sdk-python", "protobuf", "cramjam", "google-crc32c")
# In the portal's image; elsewhere the folder is missing, and builds use the package index.
FOLDER = Path("/opt/regatta-build/wheels")


def packages() -> tuple[str, ...]:
    """Return the packages that the runtime needs, as requirements."""
    return tuple(f"{name}=={version(name)}" for name in PACKAGES)


def main(folder: Path) -> int:
    """Download the wheels, with those of the packages' own requirements, by pip's settings."""
    options = ("--only-binary=:all:", "--no-cache-dir", "--disable-pip-version-check", "--progress-bar=off")
    command = (sys.executable, "-m", "pip", "download", *options, f"--dest={folder}", *packages())
    return subprocess.run(command, check=False).returncode


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
