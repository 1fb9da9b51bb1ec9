"""``manage.py render-manifests``: print the manifests of an installation. It needs no settings, database or network.

    python3 manage.py render-manifests values.yaml > manifests.yaml
    python3 manage.py render-manifests --defaults            print all values with their defaults

Errors and warnings go to standard error. The exit status is 1 if the values file has errors; then nothing is printed.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

import yaml

from portal.deployment.documented_values import documented
from portal.deployment.render import rendered
from portal.deployment.settings_of_values import names_in
from portal.deployment.values import BadValues

NAME = "render-manifests"
ROOT = Path(__file__).resolve().parents[2]
FOLDER = ROOT / "deploy" / "kubernetes"


class Unusable(Exception):
    """A file cannot be read. The message says what to do."""


def manifests(folder: Path = FOLDER) -> list[str]:
    """Return the texts of the files of the kustomization, in its order. Raises Unusable."""
    try:
        names = yaml.safe_load((folder / "kustomization.yaml").read_text(encoding="utf-8"))["resources"]
        return [(folder / name).read_text(encoding="utf-8") for name in names]
    except OSError as error:
        raise Unusable(
            f"{error.filename}: {error.strerror}. Run the command in a copy of the project: images have no manifests."
        ) from None


def known_settings(folder: Path = ROOT / "portal") -> frozenset[str]:
    """Return the names of the settings that the portal reads."""
    own = Path(__file__).parent
    files = [path for path in sorted(folder.rglob("*.py")) if own not in path.parents]
    return frozenset().union(*(names_in(path.read_text(encoding="utf-8")) for path in files))


def main(arguments: Sequence[str]) -> int:
    """Return the exit status."""
    parser = argparse.ArgumentParser(prog=f"manage.py {NAME}", description="Print the manifests of an installation.")
    source = parser.add_mutually_exclusive_group(required=True)
    source.add_argument("values", nargs="?", metavar="FILE", help="values file; - reads standard input")
    source.add_argument("--defaults", action="store_true", help="print all values with their defaults")
    options = parser.parse_args(arguments)
    if options.defaults:
        sys.stdout.write(documented())
        return 0
    try:
        found = rendered(manifests(), _read(options.values), known_settings())
    except BadValues as error:
        _say(options.values, "error", error.problems)
        return 1
    except Unusable as error:
        sys.stderr.write(f"{error}\n")
        return 1
    _say(options.values, "warning", found.warnings)
    sys.stdout.write(found.text)
    return 0


def _read(path: str) -> str:
    try:
        return sys.stdin.read() if path == "-" else Path(path).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "the file is not UTF-8"
        raise Unusable(f"{path}: {reason}.") from None


def _say(path: str, what: str, texts: Sequence[str]) -> None:
    sys.stderr.writelines(f"{path}: {what}: {text}\n" for text in texts)
