"""What the program that makes images is told (``order.json`` in its folder), and what it answers. Pure but for reading
and writing that file."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any

from jobs.builds.images.plan import Image, Kind

ORDER, OUTCOME, LOG, LOCK = "order.json", "outcome.json", "build.log", "lock"
_RUNTIME_BYTES = 8 * 1024**3  # the platform's own is not what is limited
WORKSPACE_BYTES = 2 * 1024**3  # bytes beside what an image adds: what pip unpacks, the packed layer
BUILDAH, POD = "buildah", "pod"


@dataclass(frozen=True)
class Order:
    """``images``: as in ``plan.Plan``. ``registry`` is a host. ``seconds`` for all images together, ``bytes`` of what
    an image may add. ``pip``: pip's settings (``PIP_...``) and proxies. ``storage``: the builder's own directory.

    The last four are the in-cluster builder's: where the cluster is, the namespace of its pods, the image with the
    tools, and the secret (a Docker configuration) with which it pushes.
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
        path.touch(mode=0o600)  # an index's address may hold a password
        path.write_text(json.dumps(asdict(self)), encoding="utf-8")

    @classmethod
    def read(cls, folder: Path) -> Order:
        body = json.loads((folder / ORDER).read_text(encoding="utf-8"))
        known = {each.name for each in fields(cls)}
        images = tuple(map(Image.from_json, body["images"]))
        return cls(**{**{name: value for name, value in body.items() if name in known}, "images": images})


def step(order: Order, image: Image, pip: Mapping[str, str], seconds: float, platform: str) -> dict[str, Any]:
    """What ``build_step.py`` is told."""
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
    """Files and folders of this machine that pip's settings name, and the settings with the places at which the image
    sees them. ``mounts``: {place: path here}."""

    pip: Mapping[str, str]
    mounts: Mapping[str, str]


def pip_mounts(pip: Mapping[str, str], below: str, exists: Any = lambda path: Path(path).exists()) -> PipMounts:
    """Where the image sees what lies here: ``below/0``, ``below/1`` and so on."""
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
