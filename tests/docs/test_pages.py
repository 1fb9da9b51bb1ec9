"""Documents are checked against the code."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import yaml
from django.urls import Resolver404, resolve

from jobs.lifecycle.states import JobState
from jobs.selectors import specifications
from regatta import errors

ROOT = Path(__file__).resolve().parent.parent.parent
GATEWAY_SETTINGS = ROOT / "runtime" / "coordination" / "gateway" / "settings.py"
DOCUMENTS = [ROOT / "README.md", ROOT / "ARCHITECTURE.md", ROOT / "CHANGELOG.md", *sorted(ROOT.glob("docs/**/*.md"))]
DOCUMENTS.append(ROOT / "deploy" / "README.md")
README, GUIDE, API = ROOT / "README.md", ROOT / "docs" / "guide.md", ROOT / "docs" / "api.md"
SAMPLES = {
    "ns": "ada",
    "id": "00000000-0000-4000-8000-000000000000",
    "name": "digits",
    "request": "1",
    "recording": "00000000-0000-4000-8000-000000000000",
    "username": "ada",
}


def blocks(document: Path, language: str) -> list[str]:
    return re.findall(rf"^ *```{language}\n(.*?)^ *```$", document.read_text(), re.MULTILINE | re.DOTALL)


def headings(document: Path) -> set[str]:
    """Return the anchors of a document's headings."""
    titles = re.findall(r"^#+ (.*)$", document.read_text(), re.MULTILINE)
    return {re.sub(r"[^\w -]", "", title).strip().lower().replace(" ", "-") for title in titles}


def links() -> Iterator[tuple[Path, str]]:
    for document in DOCUMENTS:
        for target in re.findall(r"\]\(([^)]+)\)", document.read_text()):
            if not target.startswith(("http://", "https://")):
                yield document, target


@pytest.mark.parametrize(("document", "target"), list(links()), ids=lambda value: getattr(value, "name", value))
def test_links_have_targets(document: Path, target: str) -> None:
    path, _, anchor = target.partition("#")
    found = (document.parent / path).resolve() if path else document
    assert found.exists()
    assert not anchor or anchor in headings(found)


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda document: str(document.relative_to(ROOT)))
def test_python_in_a_document_is_python(document: Path) -> None:
    for block in blocks(document, "python"):
        indent = len(block) - len(block.lstrip(" "))
        compile("".join(line[indent:] or "\n" for line in block.splitlines(keepends=True)), str(document), "exec")


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda document: str(document.relative_to(ROOT)))
def test_json_in_a_document_is_json(document: Path) -> None:
    for block in blocks(document, "json"):
        json.loads(block)


@pytest.mark.parametrize("document", [README, GUIDE], ids=lambda document: document.name)
def test_the_three_lines_train_a_model_outside_a_job(document: Path, tmp_path: Path) -> None:
    script = next(block for block in blocks(document, "python") if "job.save_model" in block)
    environment = {"PATH": os.environ["PATH"], "PYTHONPATH": str(ROOT)}
    subprocess.run([sys.executable, "-c", script], cwd=tmp_path, env=environment, check=True, timeout=60)
    with np.load(tmp_path / "model.npz") as model:
        assert {name: model[name].shape for name in model.files} == {"w": (64, 10), "b": (10,)}


def test_the_specification_in_the_guide_is_accepted() -> None:
    described, *parts = map(yaml.safe_load, blocks(GUIDE, "yaml"))
    assert specifications.parse(described).trainer.replicas == 2
    for part in parts:
        specifications.parse({**described, **part})


def calls() -> list[str]:
    return sorted(set(re.findall(r"^\| `(?:GET|POST|PUT|PATCH|DELETE) (/[^`]+)`", API.read_text(), re.MULTILINE)))


@pytest.mark.parametrize("call", calls())
def test_a_documented_call_has_a_route(call: str) -> None:
    try:
        resolve(re.sub(r"\{(\w+)\}", lambda name: SAMPLES[name[1]], call))
    except Resolver404:
        pytest.fail(f"{call} is documented and leads nowhere")


def test_the_guide_describes_every_state() -> None:
    described = set(re.findall(r"^\| ([A-Z]+) \|", GUIDE.read_text(), re.MULTILINE))
    assert described == {str(state) for state in JobState}


def test_the_guide_describes_every_exit_code() -> None:
    described = {int(code) for code in re.findall(r"^\| (\d+) \|", GUIDE.read_text(), re.MULTILINE)}
    kinds = [kind for kind in vars(errors).values() if isinstance(kind, type) and issubclass(kind, errors.PortalError)]
    known = {kind.exit_code for kind in kinds} | set(errors.EXIT_OF_STATE.values()) | {errors.EXIT_INTERRUPTED}
    assert described == known


def test_every_setting_is_in_a_table_for_operators() -> None:
    """A string constant that consists of a variable's name counts as a setting, in the portal and in the gateway."""
    read = {
        name
        for file in (*(ROOT / "portal").rglob("*.py"), GATEWAY_SETTINGS)
        for name in re.findall(r'"(REGATTA_[A-Z_]+|PORT)"', file.read_text())
    }
    tables = (ROOT / "deploy" / "README.md", ROOT / "docs" / "kubernetes.md")
    documented = {
        name
        for table in tables
        for name in re.findall(r"^\| `(REGATTA_[A-Z_]+|PORT)` \|", table.read_text(), re.MULTILINE)
    }
    assert sorted(documented) == sorted(read)


# Limits that an operator would otherwise not expect.
UNPROMISED = [
    ("docs/security.md", "169.254.169.254"),
    ("docs/security.md", "services on the loopback device"),
    ("docs/security.md", "Abstract sockets"),
    ("deploy/README.md", "mode 0600"),
]


@pytest.mark.parametrize(("page", "words"), UNPROMISED)
def test_the_limits_of_the_guarantees_are_documented(page: str, words: str) -> None:
    assert words in (ROOT / page).read_text()


PAGES = [ROOT / "ARCHITECTURE.md", *sorted(ROOT.glob("docs/architecture/*.md"))]


def named_places() -> list[str]:
    """Return names in code type on the architecture pages that look like a file, a folder, or a name in a module."""
    top = {path.name for path in ROOT.iterdir()}
    named = [name for page in PAGES for name in re.findall(r"`([^`\s]+)`", page.read_text())]
    return [name for name in dict.fromkeys(named) if name.split("/")[0] in top and "/" in name and "<" not in name]


def is_defined(name: str, path: Path) -> bool:
    """Return whether a function, class or constant of this name is defined in the file, or in a file below the
    folder."""
    pattern = re.compile(rf"^\s*(async def|def|class) {name}\b|^{name}\b", re.MULTILINE)
    sources = path.rglob("*.py") if path.is_dir() else [path]
    return any(pattern.search(source.read_text()) for source in sources)


@pytest.mark.parametrize("place", named_places())
def test_names_in_the_architecture_exist(place: str) -> None:
    path, _, name = place.partition("::")
    if not (ROOT / path).exists():  # jobs/services/jobs.submit_job: a name in a module
        module, _, name = path.rpartition(".")
        path = f"{module}.py"
    assert (ROOT / path).exists()
    assert not name or is_defined(name, ROOT / path)


def named_functions() -> list[tuple[str, str]]:
    """Return the files and functions of the rows of the architecture pages' tables "step, file, function"."""
    rows = [
        row for page in PAGES for row in re.findall(r"^\| [^|`]+ \| (`[^|]+`) \| (`[^|]+`) \|", page.read_text(), re.M)
    ]
    return [(files, name) for files, names in rows for name in re.findall(r"`(\w+)`", names)]


@pytest.mark.parametrize(("files", "name"), named_functions())
def test_a_step_of_the_flow_is_in_the_file_that_the_architecture_names(files: str, name: str) -> None:
    assert any(is_defined(name, ROOT / file) for file in re.findall(r"`([^`]+)`", files))


def test_the_architecture_links_to_every_page_of_a_package() -> None:
    linked = set(re.findall(r"\(docs/architecture/([\w-]+\.md)\)", (ROOT / "ARCHITECTURE.md").read_text()))
    assert linked == {page.name for page in PAGES[1:]}


def test_the_architecture_is_short() -> None:
    assert len((ROOT / "ARCHITECTURE.md").read_bytes()) <= 10 * 1024
