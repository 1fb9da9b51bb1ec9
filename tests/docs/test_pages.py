"""What the documents say is held against the code."""

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
from django.urls import Resolver404, resolve

from jobs import spec
from jobs.states import JobState
from regatta import errors

ROOT = Path(__file__).resolve().parent.parent.parent
DOCUMENTS = [ROOT / "README.md", ROOT / "ARCHITECTURE.md", ROOT / "CHANGELOG.md", *sorted(ROOT.glob("docs/**/*.md"))]
DOCUMENTS.append(ROOT / "deploy" / "README.md")
README, GUIDE, API = ROOT / "README.md", ROOT / "docs" / "guide.md", ROOT / "docs" / "api.md"
SAMPLES = {
    "ns": "ada",
    "id": "00000000-0000-4000-8000-000000000000",
    "name": "digits",
    "request": "1",
    "username": "ada",
}


def blocks(document: Path, language: str) -> list[str]:
    return re.findall(rf"^ *```{language}\n(.*?)^ *```$", document.read_text(), re.MULTILINE | re.DOTALL)


def headings(document: Path) -> set[str]:
    """The anchors of a document's headings."""
    titles = re.findall(r"^#+ (.*)$", document.read_text(), re.MULTILINE)
    return {re.sub(r"[^\w -]", "", title).strip().lower().replace(" ", "-") for title in titles}


def links() -> Iterator[tuple[Path, str]]:
    for document in DOCUMENTS:
        for target in re.findall(r"\]\(([^)]+)\)", document.read_text()):
            if not target.startswith(("http://", "https://")):
                yield document, target


@pytest.mark.parametrize(("document", "target"), list(links()), ids=lambda value: getattr(value, "name", value))
def test_a_link_leads_somewhere(document: Path, target: str) -> None:
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
def test_the_three_lines_train_a_model_alone(document: Path, tmp_path: Path) -> None:
    script = next(block for block in blocks(document, "python") if "job.save_model" in block)
    environment = {"PATH": os.environ["PATH"], "PYTHONPATH": str(ROOT)}
    subprocess.run([sys.executable, "-c", script], cwd=tmp_path, env=environment, check=True, timeout=60)
    with np.load(tmp_path / "model.npz") as model:
        assert {name: model[name].shape for name in model.files} == {"w": (64, 10), "b": (10,)}


def test_the_description_in_the_guide_is_taken() -> None:
    (described,) = blocks(GUIDE, "yaml")
    assert spec.parse(described).trainer.replicas == 2


def calls() -> list[str]:
    return sorted(set(re.findall(r"^\| `(?:GET|POST|PUT|PATCH|DELETE) (/[^`]+)`", API.read_text(), re.MULTILINE)))


@pytest.mark.parametrize("call", calls())
def test_a_documented_call_has_a_route(call: str) -> None:
    try:
        resolve(re.sub(r"\{(\w+)\}", lambda name: SAMPLES[name[1]], call))
    except Resolver404:
        pytest.fail(f"{call} is documented and leads nowhere")


def test_the_guide_knows_every_state() -> None:
    described = set(re.findall(r"^\| ([A-Z]+) \|", GUIDE.read_text(), re.MULTILINE))
    assert described == {str(state) for state in JobState}


def test_the_guide_knows_every_exit_code() -> None:
    described = {int(code) for code in re.findall(r"^\| (\d+) \|", GUIDE.read_text(), re.MULTILINE)}
    kinds = [kind for kind in vars(errors).values() if isinstance(kind, type) and issubclass(kind, errors.PortalError)]
    known = {kind.exit_code for kind in kinds} | set(errors.EXIT_OF_STATE.values()) | {errors.EXIT_INTERRUPTED}
    assert described == known


def test_every_setting_is_in_a_table_for_operators() -> None:
    """A variable is what a string of the portal's code consists of, whole."""
    read = {
        name
        for file in (ROOT / "portal").rglob("*.py")
        for name in re.findall(r'"(REGATTA_[A-Z_]+|PORT)"', file.read_text())
    }
    tables = (ROOT / "deploy" / "README.md", ROOT / "docs" / "kubernetes.md")
    told = {
        name
        for table in tables
        for name in re.findall(r"^\| `(REGATTA_[A-Z_]+|PORT)` \|", table.read_text(), re.MULTILINE)
    }
    assert sorted(told) == sorted(read)


# What an operator would otherwise take for granted.
UNPROMISED = [
    ("docs/security.md", "169.254.169.254"),
    ("docs/security.md", "services on the loopback device"),
    ("docs/security.md", "Abstract sockets"),
    ("deploy/README.md", "mode 0600"),
]


@pytest.mark.parametrize(("page", "words"), UNPROMISED)
def test_what_is_not_promised_is_said(page: str, words: str) -> None:
    assert words in (ROOT / page).read_text()


def named_places() -> list[str]:
    """What ARCHITECTURE.md names in code type that looks like a file, a folder, or a test in a file."""
    rooms = {path.name for path in ROOT.iterdir()}
    named = re.findall(r"`([^`\s]+)`", (ROOT / "ARCHITECTURE.md").read_text())
    return [name for name in dict.fromkeys(named) if name.split("/")[0] in rooms and "/" in name and "<" not in name]


@pytest.mark.parametrize("place", named_places())
def test_what_the_architecture_names_is_there(place: str) -> None:
    path, _, test = place.partition("::")
    if not (ROOT / path).exists():  # jobs/services.submit_job: a name in a module
        module, _, name = path.rpartition(".")
        path, test = f"{module}.py", name
    assert (ROOT / path).exists()
    if test:
        pattern = rf"^\s*(def|class) {test}\b|^{test}\b"
        source = ROOT / path
        sources = source.rglob("*.py") if source.is_dir() else [source]
        assert any(re.search(pattern, one.read_text(), re.MULTILINE) for one in sources)
