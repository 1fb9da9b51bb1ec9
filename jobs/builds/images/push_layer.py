"""Program of a build pod: ``build.py <folder>`` runs ``build_step.py`` and pushes the added files as a layer.

Standard library only. ``export_toolkit.py`` copies it with the modules that it needs.
"""

from __future__ import annotations

import json
import sys
import tempfile
from functools import partial
from pathlib import Path
from typing import Any


def main(folder: Path) -> int:
    # The project's modules are in the same folder; the image has none of them.
    sys.path.insert(0, str(folder / "tool"))
    from jobs.builds.images import build_step

    step, push = (
        json.loads((folder / "step" / f"{name}.json").read_text(encoding="utf-8")) for name in ("step", "push")
    )
    with tempfile.TemporaryDirectory() as elsewhere:
        failed = build_step.made(step, folder / "tool", Path(elsewhere))
        return failed or _push(folder, push, Path(elsewhere))


def _push(folder: Path, push: dict[str, Any], elsewhere: Path) -> int:
    """Push the image with the step's folder, and with the files of ``elsewhere`` at their paths below the root."""
    from jobs.builds.images import build_step, layers, plan
    from jobs.builds.images.registry_client import (
        PATIENCE_SECONDS,
        Credentials,
        Registry,
        RegistryError,
        wait_for_registry,
    )

    def registry(host: str) -> Registry:
        file = folder / "credentials" / "config.json"
        credentials = Credentials.read(file if file.exists() else None, host)
        return Registry(host, insecure=push["insecure"] and host == push["registry"], credentials=credentials)

    settings = {"User": f"{plan.USER}:{plan.GROUP}"}
    source = registry(plan.parts(push["parent"])[0])
    target = registry(push["registry"])
    try:
        files = {push["folder"]: Path(push["folder"]), **{f"/{child.name}": child for child in elsewhere.iterdir()}}
        put = partial(
            layers.append, source, push["parent"], target, push["reference"], files, by="regatta", settings=settings
        )
        wait_for_registry(put, PATIENCE_SECONDS, _write_log)
    except (RegistryError, OSError, ValueError) as error:
        _write_log(build_step.Problem("image_not_pushed", error=str(error)).line())
        return 1
    return 0


def _write_log(line: str) -> None:
    print(line, flush=True)  # noqa: T201  the build's log


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
