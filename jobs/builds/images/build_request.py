"""Build requests of the program that builds images: ``order.json`` in its folder. Pure except for that file."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any

from jobs.builds.images.plan import Image, Kind

ORDER, OUTCOME, LOG, LOCK = "order.json", "outcome.json", "build.log", "lock"
GIVEN_UP = "given-up"  # a file that ends the worker
_RUNTIME_BYTES = 8 * 1024**3  # the limit of users does not apply to the platform's own image
WORKSPACE_BYTES = 2 * 1024**3  # beside the content of an image: pip's unpacked files, the packed layer
BUILDAH, POD = "buildah", "pod"


@dataclass(frozen=True)
class Order:
    """Build request.

    * ``images``: as in ``plan.Plan``; ``registry``: a host; ``credentials``: the path of a Docker configuration.
    * ``seconds``: time limit of all images together; ``bytes``: size limit of the files that one image adds.
    * ``storage``: the builder's own directory; ``pip``: pip's settings (``PIP_...``) and proxies.
    * For the builder in the cluster: ``kubeconfig``; ``namespace`` of its pods; ``tools``: the image with the tools;
      ``secret``: the Docker configuration with which it pushes.
    """

    images: tuple[Image, ...]
    registry: str
    insecure: bool
    credentials: str
    seconds: float
    bytes: int
    builder: str
    storage: str
    pip: Mapping[str, str] = field(default_factory=dict)
    kubeconfig: str = ""
    namespace: str = ""
    tools: str = ""
    secret: str = ""

    def write(self, folder: Path) -> None:
        path = folder / ORDER
        path.touch(mode=0o600)  # the address of a package index can contain a password
        path.write_text(json.dumps(asdict(self)), encoding="utf-8")

    @classmethod
    def read(cls, folder: Path) -> Order:
        body = json.loads((folder / ORDER).read_text(encoding="utf-8"))
        known = {each.name for each in fields(cls)}
        images = tuple(map(Image.from_json, body["images"]))
        return cls(**{**{name: value for name, value in body.items() if name in known}, "images": images})


def step(order: Order, image: Image, pip: Mapping[str, str], seconds: float, platform: str) -> dict[str, Any]:
    """Return the input of ``build_step.py``."""
    return {
        "kind": str(image.kind),
        "target": image.folder,
        "requirements": list(image.requirements),
        "platform": platform,
        "alone": image.alone,
        "seconds": seconds,
        "bytes": order.bytes if image.kind is Kind.ENVIRONMENT else _RUNTIME_BYTES,
        "pip": dict(pip),
    }


@dataclass(frozen=True)
class PipMounts:
    """pip's settings for use in the image, and the mounts of local paths that they name.

    ``mounts``: path in the image to path on this machine.
    """

    pip: Mapping[str, str]
    mounts: Mapping[str, str]


def pip_mounts(pip: Mapping[str, str], below: str, exists: Any = lambda path: Path(path).exists()) -> PipMounts:
    """Replace paths of this machine in pip's settings by mount points ``below/0``, ``below/1`` and so on."""
    mounts: dict[str, str] = {}
    changed: dict[str, str] = {}
    for name, value in sorted(pip.items()):
        words = [_moved(word, below, mounts, exists) for word in value.split()]
        changed[name] = " ".join(words)
    return PipMounts(changed, mounts)


def _moved(word: str, below: str, mounts: dict[str, str], exists: Any) -> str:
    path = word.removeprefix("file://")
    if not path.startswith("/") or path == "/dev/null" or not exists(path):
        return word
    place = next((known for known, there in mounts.items() if there == path), f"{below}/{len(mounts)}")
    mounts[place] = path
    return word.replace(path, place)
