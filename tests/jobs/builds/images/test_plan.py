"""Names of images, and the inputs on which they depend."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jobs.builds.images import plan
from jobs.builds.images.plan import Kind, Platform, is_of_another_namespace

PLATFORM = Platform("registry.example.org:5000/regatta", "python:3.11-slim", "a" * 64, ("numpy==2.4.6",))
CODE = "c" * 64
REPOSITORY = re.compile(r"[a-z0-9]+(?:(?:[._]|__|-+)[a-z0-9]+)*(?:/[a-z0-9]+(?:(?:[._]|__|-+)[a-z0-9]+)*)*")
TAG = re.compile(r"[a-zA-Z0-9_][a-zA-Z0-9._-]{0,127}")
requirement_lists = st.lists(st.sampled_from(["pandas", "numpy==2.4.6", "torch>=2", "click"]), max_size=4).map(tuple)


def kinds(requirements: tuple[str, ...]) -> list[Kind]:
    return [image.kind for image in plan.plan(PLATFORM, "team", CODE, requirements).images]


def test_a_job_with_requirements_has_three_images_and_one_without_has_two() -> None:
    assert kinds(("pandas",)) == [Kind.RUNTIME, Kind.ENVIRONMENT, Kind.JOB]
    assert kinds(()) == [Kind.RUNTIME, Kind.JOB]


def test_each_image_is_the_parent_of_the_next_and_the_base_of_the_first() -> None:
    images = plan.plan(PLATFORM, "team", CODE, ("pandas",)).images
    assert [image.parent for image in images] == [
        "docker.io/library/python:3.11-slim",
        images[0].reference,
        images[1].reference,
    ]


@given(requirement_lists)
def test_the_same_requirements_in_another_order_are_the_same_images(requirements: tuple[str, ...]) -> None:
    turned = tuple(f" {line} " for line in reversed(requirements))
    assert plan.plan(PLATFORM, "team", CODE, requirements) == plan.plan(PLATFORM, "team", CODE, turned)


@given(requirement_lists, requirement_lists)
def test_other_requirements_are_another_image(one: tuple[str, ...], other: tuple[str, ...]) -> None:
    first, second = (plan.plan(PLATFORM, "team", CODE, each).reference for each in (one, other))
    assert (first == second) == (set(one) == set(other))


def test_other_code_has_the_same_environment() -> None:
    one, other = (plan.plan(PLATFORM, "team", digest, ("pandas",)) for digest in ("c" * 64, "d" * 64))
    assert one.images[:-1] == other.images[:-1]
    assert one.reference != other.reference


@pytest.mark.parametrize("change", [{"base": "python:3.12"}, {"runtime": "b" * 64}, {"packages": ("numpy==2.4.7",)}])
def test_a_change_of_the_platform_changes_all_images(change: dict[str, str]) -> None:
    before = plan.plan(PLATFORM, "team", CODE, ("pandas",))
    after = plan.plan(replace(PLATFORM, **change), "team", CODE, ("pandas",))  # type: ignore[arg-type]
    assert not {image.reference for image in before.images} & {image.reference for image in after.images}


def test_each_namespace_has_its_own_repository() -> None:
    images = plan.plan(PLATFORM, "runtime", CODE, ("pandas",)).images
    repositories = [plan.parts(image.reference)[1] for image in images]
    assert repositories == ["regatta/runtime", "regatta/jobs/runtime", "regatta/jobs/runtime"]


@given(st.from_regex(r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?", fullmatch=True), requirement_lists)
def test_every_name_is_valid_in_registries(namespace: str, requirements: tuple[str, ...]) -> None:
    for image in plan.plan(PLATFORM, namespace, CODE, requirements).images:
        host, repository, tag = plan.parts(image.reference)
        assert host == "registry.example.org:5000"
        assert REPOSITORY.fullmatch(repository)
        assert TAG.fullmatch(tag)


@pytest.mark.parametrize(
    ("written", "whole"),
    [
        ("python:3.11-slim", "docker.io/library/python:3.11-slim"),
        ("nvidia/cuda:12", "docker.io/nvidia/cuda:12"),
        ("localhost/mine", "localhost/mine"),
        ("10.77.0.2:5000/base/python:3.11", "10.77.0.2:5000/base/python:3.11"),
        ("ghcr.io/a/b@sha256:" + "0" * 64, "ghcr.io/a/b@sha256:" + "0" * 64),
    ],
)
def test_short_image_names_are_completed(written: str, whole: str) -> None:
    assert plan.normal(written) == whole


@pytest.mark.parametrize(
    ("reference", "parts"),
    [
        ("10.77.0.2:5000/base/python:3.11", ("10.77.0.2:5000", "base/python", "3.11")),
        ("ghcr.io/a/b", ("ghcr.io", "a/b", "latest")),
        ("ghcr.io/a/b:1@sha256:00", ("ghcr.io", "a/b", "sha256:00")),
    ],
)
def test_a_name_has_a_host_a_repository_and_a_tag_or_digest(reference: str, parts: tuple[str, str, str]) -> None:
    assert plan.parts(reference) == parts


def test_user_code_runs_with_the_interpreter_that_has_its_requirements() -> None:
    assert plan.plan(PLATFORM, "team", CODE, ("pandas",)).python == "/opt/job/environment/bin/python"
    assert plan.plan(PLATFORM, "team", CODE, ()).python == "/opt/regatta/bin/python"


@pytest.mark.parametrize(
    ("image", "registry", "others"),
    [
        ("registry.example.com/jobs/other:j-1", "registry.example.com", True),
        ("Registry.Example.com:443/jobs/other:j-1", "registry.example.com", True),
        ("registry.example.com/jobs/other@sha256:1", "registry.example.com:443", True),
        ("registry.example.com/regatta/jobs/other:j-1", "registry.example.com/regatta", True),
        ("registry.example.com/jobs/team:j-1", "registry.example.com", False),
        ("registry.example.com/jobs/team-2:j-1", "registry.example.com", True),
        ("registry.example.com/base/python:3.11", "registry.example.com", False),
        ("jobs/other", "registry.example.com", False),
        ("registry.example.com/jobs/other:j-1", "", False),
    ],
)
def test_images_made_for_other_namespaces_are_recognized_by_their_name(image: str, registry: str, others: bool) -> None:
    assert is_of_another_namespace(image, registry, "team") is others
