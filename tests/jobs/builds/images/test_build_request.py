"""Build requests of images, and the messages of failed builds."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from jobs.builds.images import build_request, build_step, buildah, plan
from jobs.builds.images.build_request import Order
from jobs.messages import cluster as messages
from runtime.messages import from_json

PLATFORM = plan.Platform("r.example.org", "python:3.11", "a", ("numpy==1",))
ORDER = Order(
    images=plan.plan(
        plan.Platform("r.example.org", "python:3.11", "a", ("numpy==1",)), "team", "c", ("pandas",)
    ).images,
    registry="r.example.org",
    insecure=False,
    credentials="",
    seconds=900.0,
    bytes=1024,
    builder=build_request.BUILDAH,
    storage="/nowhere",
    pip={"PIP_INDEX_URL": "https://someone:secret@pypi.example.org/simple"},
)


def test_an_order_is_read_as_it_was_written(tmp_path: Path) -> None:
    ORDER.write(tmp_path)
    assert Order.read(tmp_path) == ORDER


def test_the_order_is_private_as_it_may_contain_a_password(tmp_path: Path) -> None:
    ORDER.write(tmp_path)
    assert (tmp_path / build_request.ORDER).stat().st_mode & 0o077 == 0


def test_the_requirements_of_a_job_are_limited_and_the_platform_s_are_not() -> None:
    runtime, environment, _ = ORDER.images
    limits = [build_request.step(ORDER, image, {}, 1.0, "/opt/regatta")["bytes"] for image in (runtime, environment)]
    assert limits[1] == 1024 < limits[0]


def test_local_paths_of_pips_settings_are_mounted_in_the_image() -> None:
    here = {"/wheels", "/simple", "/ca.pem"}
    pip = {"PIP_FIND_LINKS": "/wheels https://e.org /gone", "PIP_INDEX_URL": "file:///simple", "PIP_CERT": "/ca.pem"}
    moved = build_request.pip_mounts(pip | {"SSL_CERT_FILE": "/ca.pem"}, "/b", here.__contains__)
    assert moved.mounts == {"/b/0": "/ca.pem", "/b/1": "/wheels", "/b/2": "/simple"}
    assert moved.pip == {
        "PIP_CERT": "/b/0",
        "PIP_FIND_LINKS": "/b/1 https://e.org /gone",
        "PIP_INDEX_URL": "file:///b/2",
        "SSL_CERT_FILE": "/b/0",
    }


FAILED = build_step.Problem("environment_not_created", error="full")


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        (["a", FAILED.line(), "subprocess exited with status 1"], messages.ENVIRONMENT_NOT_CREATED(error="full")),
        (["a", f"{build_step.MARK}what a package printed", "b"], "what a package printed"),
        (["one", "", *"23456"], messages.IMAGE_NOT_PUSHED(error="2 / 3 / 4 / 5 / 6")),
        ([], messages.IMAGE_NOT_PUSHED(error=messages.NO_REASON_GIVEN())),
    ],
)
def test_a_failure_is_reported_in_a_message_else_in_the_last_lines(lines: list[str], message: str) -> None:
    assert buildah.failure_message(lines, messages.IMAGE_NOT_PUSHED) == message


def test_an_index_that_pip_cannot_reach_is_reported_in_one_message() -> None:
    missing = "ERROR: Could not find a version that satisfies the requirement tiny==2.0 (from versions: none)"
    broken = "WARNING: Retrying (Retry(total=0)) after connection broken by 'Error(\"(host='e.org')\")': /simple/tiny/"
    failed = build_step.Problem("requirements_not_installed", error=f"{broken} / {missing}")
    message = buildah.failure_message([broken, missing, failed.line()], messages.IMAGE_NOT_BUILT)
    assert message == messages.PACKAGE_INDEX_UNREACHABLE(host="e.org")


def test_an_old_python_in_the_base_image_is_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    step: dict[str, Any] = build_request.step(ORDER, ORDER.images[0], {}, 1.0, "/opt/regatta")
    (tmp_path / "step.json").write_text(json.dumps(step))
    monkeypatch.setattr(build_step, "OLDEST", (4, 0))
    assert build_step.main(tmp_path) == 1
    have = ".".join(map(str, sys.version_info[:2]))
    line = capsys.readouterr().out.strip()
    assert from_json(json.loads(line.removeprefix(build_step.MARK))) == messages.BASE_IMAGE_PYTHON_TOO_OLD(
        version=have, least="4.0"
    )
