"""Export of the tools of build pods: ``python -m jobs.builds.images.export_toolkit <folder>``.

The portal's image has them in ``/opt/regatta-build``.
"""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

from jobs.builds.images import buildah

_HERE = Path(__file__).parent
_MODULES = ("__init__.py", "build_step.py", "errors.py", "layers.py", "plan.py", "registry_client.py")


def main(folder: Path) -> int:
    package = folder / "jobs" / "builds" / "images"
    package.mkdir(parents=True)
    for parent in (package.parent, package.parent.parent):
        (parent / "__init__.py").touch()
    for name in _MODULES:
        shutil.copyfile(_HERE / name, package / name)
    shutil.copyfile(_HERE / "push_layer.py", folder / "build.py")
    buildah.copy_tools(folder)
    return 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
