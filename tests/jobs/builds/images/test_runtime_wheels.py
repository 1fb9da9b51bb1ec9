"""The runtime's packages from wheels, without a package index: the decision, and an installation by pip."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from jobs.builds.images import build_request, build_step, buildah, plan, runtime_wheels
from jobs.messages import cluster as messages
from runtime.messages import from_json
from tests.jobs.builds.images.test_images import wheel

NUMPY = "numpy-2.4.6-cp311-cp311-manylinux_2_27_x86_64.manylinux_2_28_x86_64.whl"
PURE = "tenacity-9.1.2-py3-none-any.whl"
STABLE = "cramjam-2.14.0-cp39-abi3-manylinux_2_17_x86_64.whl"
PYTHON_311 = {"cp311-cp311-manylinux_2_28_x86_64", "cp39-abi3-manylinux_2_17_x86_64", "py3-none-any"}
# Nothing listens on the port "discard".
UNREACHABLE = {"PIP_INDEX_URL": "http://127.0.0.1:9/simple", "PIP_RETRIES": "1", "PIP_TIMEOUT": "1"}


# --- The decision ----------------------------------------------------------------------------------------------------
def test_wheels_with_a_supported_tag_fit() -> None:
    assert build_step.unfit([NUMPY, PURE, STABLE], PYTHON_311) == []


@pytest.mark.parametrize(
    ("supported", "unfit"),
    [
        ({"cp312-cp312-manylinux_2_28_x86_64", "cp39-abi3-manylinux_2_17_x86_64", "py3-none-any"}, [NUMPY]),
        ({"cp311-cp311-manylinux_2_28_aarch64", "py3-none-any"}, [STABLE, NUMPY]),
        ({"cp311-cp311-musllinux_1_2_x86_64", "py3-none-any"}, [STABLE, NUMPY]),
    ],
)
def test_wheels_for_another_python_machine_or_c_library_do_not(supported: set[str], unfit: list[str]) -> None:
    assert build_step.unfit([NUMPY, PURE, STABLE], supported) == unfit


# --- A failed installation -------------------------------------------------------------------------------------------
NO_ANSWER = "WARNING: Retrying (Retry(total=0)) after connection broken by 'NewConnectionError(...)': /simple/tiny/"
NOT_FOUND = [
    "ERROR: Could not find a version that satisfies ...",
    "ERROR: No matching distribution found for tiny==2.0",
]


@pytest.mark.parametrize(
    ("output", "has_index", "code"),
    [
        ([NO_ANSWER, *NOT_FOUND], True, "no_package_index"),
        (NOT_FOUND, False, "no_package_index"),
        (NOT_FOUND, True, "requirements_not_installed"),
        ([NO_ANSWER, "ERROR: tiny and huge conflict."], True, "requirements_not_installed"),
    ],
)
def test_an_index_that_does_not_answer_is_the_reason_only_if_a_package_is_missing(
    output: list[str], has_index: bool, code: str
) -> None:
    assert build_step.failure(output, has_index).code == code


def test_the_reason_names_the_requirement_and_repeats_no_connection_errors() -> None:
    problem = build_step.failure([NO_ANSWER, NO_ANSWER, *NOT_FOUND], True)
    assert from_json(json.loads(problem.line().removeprefix(build_step.MARK))) == messages.NO_PACKAGE_INDEX(
        requirement="tiny==2.0"
    )


# --- With pip --------------------------------------------------------------------------------------------------------
@pytest.fixture
def tool(tmp_path: Path) -> Path:
    """The tools of a build, with the wheel of a package that no index has."""
    folder = tmp_path / "tool"
    (folder / "wheels").mkdir(parents=True)
    buildah.copy_tools(folder)
    wheel(folder / "wheels", "tiny")
    return folder


def step(target: Path, kind: plan.Kind, **pip: str) -> dict[str, Any]:
    image = plan.Image(kind, "registry/runtime:1", "base", str(target), ("tiny==1.0",))
    order = build_request.Order((image,), "registry", False, "", 60, 1024**3, "pod", "", pip)
    return build_request.step(order, image, pip, 60.0, str(target.parent / "platform"))


@pytest.fixture(autouse=True)
def _only_the_installation(monkeypatch: pytest.MonkeyPatch) -> None:
    """The steps after it need the runtime's real packages, and compile the whole standard library."""
    monkeypatch.setattr(build_step, "_check", lambda target: None)
    monkeypatch.setattr(build_step, "_compile", lambda library, root: None)
    monkeypatch.setattr(sys, "path", [*sys.path])


@pytest.mark.invariant("A base image with the portal's Python gets the runtime without a package index.")
@pytest.mark.parametrize("pip", [UNREACHABLE, {"PIP_NO_INDEX": "1"}])
def test_the_runtime_is_installed_from_the_wheels_without_an_index(
    tool: Path, tmp_path: Path, pip: dict[str, str], capsys: pytest.CaptureFixture[str]
) -> None:
    target = tmp_path / "target"
    assert build_step.made(step(target, plan.Kind.RUNTIME, **pip), tool, tmp_path / "root") == 0
    assert (build_step._packages(target) / "tiny.py").exists()
    output = capsys.readouterr().out
    assert "from the portal's image, without a package index" in output
    assert "Retrying" not in output


def test_with_wheels_for_another_python_the_index_is_used_and_the_log_says_why(
    tool: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tool / "wheels" / "tiny-1.0-py3-none-any.whl").rename(tool / "wheels" / "tiny-1.0-cp27-cp27m-win32.whl")
    shelf = tmp_path / "shelf"
    shelf.mkdir()
    wheel(shelf, "tiny")
    pip = {"PIP_NO_INDEX": "1", "PIP_FIND_LINKS": str(shelf)}
    target = tmp_path / "target"
    assert build_step.made(step(target, plan.Kind.RUNTIME, **pip), tool, tmp_path / "root") == 0
    assert (build_step._packages(target) / "tiny.py").exists()
    have = ".".join(map(str, sys.version_info[:2]))
    assert f"no packages for Python {have} of the base image (tiny-1.0-cp27-cp27m-win32.whl)" in capsys.readouterr().out


def test_requirements_of_a_job_are_not_taken_from_the_wheels_and_their_failure_says_why(
    tool: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "platform" / "lib" / "python3.11" / "site-packages").mkdir(parents=True)
    target = tmp_path / "target"
    assert build_step.made(step(target, plan.Kind.ENVIRONMENT, **UNREACHABLE), tool, tmp_path / "root") == 1
    last = capsys.readouterr().out.strip().splitlines()[-1]
    assert from_json(json.loads(last.removeprefix(build_step.MARK))) == messages.NO_PACKAGE_INDEX(
        requirement="tiny==1.0"
    )


def test_the_runtime_s_packages_are_exact_versions() -> None:
    assert all("==" in package for package in runtime_wheels.packages())
    assert len(runtime_wheels.packages()) == len(runtime_wheels.PACKAGES)
