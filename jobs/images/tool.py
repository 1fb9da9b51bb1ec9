"""Lays out what a build pod needs: ``python -m jobs.images.tool <folder>``. The portal's image has it in
``/opt/regatta-build``."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

from jobs.images import buildah

_HERE = Path(__file__).parent
_MODULES = ("__init__.py", "errors.py", "inside.py", "layers.py", "plan.py", "registry.py")


def main(folder: Path) -> int:
    package = folder / "jobs" / "images"
    package.mkdir(parents=True)
    (folder / "jobs" / "__init__.py").touch()
    for name in _MODULES:
        shutil.copyfile(_HERE / name, package / name)
    shutil.copyfile(_HERE / "append.py", folder / "build.py")
    buildah.lay_out_tools(folder)
    return 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
