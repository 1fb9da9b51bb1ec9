"""Texts about the isolation of jobs, and about its missing parts, in the reader's language."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from django.test import Client
from django.utils import translation

from jobs.backends.local import isolation
from portal.common.messages import localized
from runtime.isolation import delegation, probe
from runtime.isolation.delegation import Home, Observed
from runtime.isolation.probe import Isolation, Mode
from runtime.messages import isolation as messages
from tests.personas import Personas
from tests.portal.common.test_messages import is_translated

FOLDER = Path("/sys/fs/cgroup/portal")
EVERY = frozenset(delegation.REQUESTED)


def missing_layers(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """Yield every reason of this machine and of others."""
    for hindrance, value, _how in probe._HINDRANCES:
        monkeypatch.setattr(
            probe, "_setting", lambda name, wanted=hindrance, value=value: value if name == wanted else ""
        )
        yield probe._explained(Mode.USER, "EPERM")
    monkeypatch.setattr(probe, "_setting", lambda name: "")
    yield probe._explained(Mode.USER, messages.COMMAND_EXIT_CODE(code=1))
    yield probe._explained(Mode.UID, messages.COMMAND_TIMED_OUT())
    yield from probe._without_landlock(0)
    yield from probe.probe(1, ["/usr/share"]).missing[:1]
    monkeypatch.setattr(probe, "_try", lambda *_, **__: "ENOSPC")
    yield probe.network_problem(Mode.USER, 0, "")
    yield from delegation.decide(Observed(None)).missing
    yield from delegation.decide(Observed(FOLDER)).missing
    yield from delegation.decide(Observed(FOLDER, writable=True)).missing
    yield from delegation.decide(Observed(FOLDER, writable=True, others=True, available=EVERY)).missing


@pytest.fixture
def chinese() -> Iterator[None]:
    with translation.override("zh-hans"):
        yield


@pytest.fixture
def layers() -> set[str]:
    """Return the name of every layer."""
    homes = [Home(FOLDER, frozenset(names)) for names in ((), ("memory",), ("pids",), ("memory", "pids"))]
    every = [Isolation(mode, (), 6, home.layer, network=True) for mode in Mode for home in homes]
    return {layer for each in every for layer in each.layers}


@pytest.mark.usefixtures("chinese")
def test_missing_layers_and_their_remedies_are_translated(monkeypatch: pytest.MonkeyPatch) -> None:
    texts = list(missing_layers(monkeypatch))
    assert len(texts) == 12
    assert [text for text in texts if not is_translated(text)] == []


@pytest.mark.usefixtures("chinese")
def test_every_layer_has_a_chinese_name(layers: set[str]) -> None:
    assert {layer for layer in layers if localized(layer) == layer} == {"seccomp", "Landlock", "cgroup"}


@pytest.mark.django_db
def test_the_page_names_layers_and_missing_parts_in_chinese(
    personas: Personas, monkeypatch: pytest.MonkeyPatch, settings: Any
) -> None:
    settings.LOCAL_ISOLATION = "auto"
    found = Isolation(Mode.USER, (messages.KERNEL_TOO_OLD_FOR_CGROUPS(),))
    monkeypatch.setattr(isolation, "provided", lambda: found)
    client = Client(HTTP_ACCEPT_LANGUAGE="zh-hans")
    client.force_login(personas.admin)
    page: Any = client.get("/admin/cluster").content.decode()
    assert "<li>用户命名空间</li><li>PID、挂载和 IPC 命名空间</li><li>独立的文件视图</li>" in page
    assert "<li>无法为每个任务提供 cgroup：请使用 Linux 5.14 或更高版本</li>" in page
