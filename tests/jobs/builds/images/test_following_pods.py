"""A build pod is followed while the API server is unavailable for a time."""

from __future__ import annotations

import io
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from jobs.builds.images import pod_builder
from jobs.builds.images.build_request import Order
from jobs.builds.images.errors import BuildFailed
from jobs.builds.images.plan import Image, Kind
from jobs.messages import cluster as messages
from jobs.operator.client.api import Refusal
from tests.messages import pattern

IMAGE = Image(Kind.JOB, "registry.example/jobs/code:1", "registry.example/base:1", "/job")
ORDER = Order((IMAGE,), "registry.example", False, "", 60.0, 2**30, "pod", "", namespace="builds", tools="tools:1")


class RefusingAtFirst:
    """API server that refuses each call ``times`` times before it answers; the pod has succeeded by then."""

    def __init__(self, status: int, times: int) -> None:
        self._status, self._times = status, times
        self._refused: dict[tuple[str, str], int] = {}

    def call(self, method: str, path: str, body: Any = None, query: Mapping[str, str] | None = None) -> dict[str, Any]:
        refused = self._refused.get((method, path), 0)
        if refused < self._times:
            self._refused[method, path] = refused + 1
            raise Refusal(self._status, "Away", "it starts again")
        return {"status": {"phase": "Succeeded"}}

    def text(self, path: str, query: Mapping[str, str] | None = None) -> str:
        return ""


@pytest.fixture(autouse=True)
def _no_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pod_builder, "_AWAY_SECONDS", 0.0)
    monkeypatch.setattr(pod_builder, "_LOOK_SECONDS", 0.0)


def make(api: Any, deadline: float) -> str:
    log = io.StringIO()
    pod_builder.Pods(ORDER, deadline, log, api).make(IMAGE, Path())
    return log.getvalue()


@pytest.mark.parametrize("status", [0, 429, 500, 503])
def test_a_temporarily_unavailable_api_server_fails_no_image(status: int) -> None:
    log = make(RefusingAtFirst(status, times=3), time.monotonic() + 60)
    assert messages.CLUSTER_NOT_RESPONDING(error="it starts again") in log


@pytest.mark.parametrize("status", [403, 404, 422])
def test_a_refusal_of_the_cluster_fails_the_image(status: int) -> None:
    with pytest.raises(BuildFailed, match=pattern(messages.IMAGE_BUILD_FORBIDDEN)):
        make(RefusingAtFirst(status, times=1), time.monotonic() + 60)


def test_an_unavailable_api_server_is_waited_for_until_the_deadline() -> None:
    with pytest.raises(BuildFailed, match=pattern(messages.IMAGE_BUILD_FORBIDDEN)):
        make(RefusingAtFirst(503, times=10**6), time.monotonic())
