"""The page on installation, compared with the manifests and the values."""

from __future__ import annotations

import re
from pathlib import Path

from portal.deployment.fields import BY_PATH
from portal.deployment.objects import Object, containers_of, pod_of
from portal.deployment.render import checked
from portal.deployment.transformations.images import replaced_images
from portal.deployment.values import parse
from tests.portal.deployment.installations import KNOWN, installation, workloads

PAGE = (Path(__file__).parents[3] / "docs" / "operations.md").read_text()
_MEBIBYTES = {"Mi": 1, "Gi": 1024}


def millicores(text: str) -> int:
    return int(text[:-1]) if text.endswith("m") else int(float(text) * 1000)


def mebibytes(text: str) -> int:
    return int(text[:-2]) * _MEBIBYTES[text[-2:]]


def requested(workload: Object, resource: str) -> int:
    """Return what the replicas of a workload request: the larger of an init container and the sum of the others."""
    read = millicores if resource == "cpu" else mebibytes
    containers = pod_of(workload)["containers"]
    before = [each for each in containers_of(workload) if each not in containers]
    together = sum(read(each["resources"]["requests"][resource]) for each in containers)
    largest = max([read(each["resources"]["requests"][resource]) for each in before], default=0)
    return int(workload["spec"]["replicas"]) * max(together, largest)


def test_the_page_has_what_the_platform_requests() -> None:
    found = re.search(r"requests ([0-9,]+)m of CPU and ([0-9,]+) MiB of memory", PAGE)
    assert found
    written = tuple(int(number.replace(",", "")) for number in found.groups())
    objects = list(workloads(installation()))
    assert written == tuple(sum(requested(each, name) for each in objects) for name in ("cpu", "memory"))


def test_the_example_on_the_page_is_a_values_file() -> None:
    (block,) = re.findall(r"```yaml\n(   image:.*?)```", PAGE, re.DOTALL)
    text = "".join(line.removeprefix("   ") for line in block.splitlines(keepends=True))
    assert checked(text, KNOWN)["ingress.trustedProxies"]


def test_the_page_names_every_image_to_mirror() -> None:
    images = {image for image in replaced_images(parse("")) if "registry.example.com" not in image}
    missing = [image for image in (*images, BY_PATH["builds.baseImage"].default) if f"`{image}`" not in PAGE]
    assert missing == []


def test_values_on_the_page_exist() -> None:
    sections = {path.partition(".")[0] for path in BY_PATH}
    install = PAGE[PAGE.index("## Install") : PAGE.index("## Upgrade")]
    named = re.findall(r"`([a-z][A-Za-z0-9]*(?:\.[A-Za-z]+)+)(?::[^`]*)?`", install)
    values = {name for name in named if name.partition(".")[0] in sections and not name.endswith((".yaml", ".json"))}
    unknown = [name for name in values if not any(path == name or path.startswith(f"{name}.") for path in BY_PATH)]
    assert values
    assert unknown == []
