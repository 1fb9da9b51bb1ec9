"""Start of tracing in a process."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from django.core.management.base import CommandError
from pytest_django import Settings

from portal.common.monitoring.metrics import Process
from portal.common.tracing import recording
from portal.common.tracing.context import SpanContext
from portal.common.tracing.spans import Span
from portal.operations import tracing
from tests.servers.otlp_collector import Collector

ROOT = Path(__file__).resolve().parents[3]
SPAN = Span("work", SpanContext("a" * 32, "b" * 16), "", 1, 2)


@pytest.fixture(autouse=True)
def _ends() -> Iterator[None]:
    yield
    recording.install(None)


def test_without_a_collector_nothing_is_recorded(settings: Settings) -> None:
    settings.OTLP_ENDPOINT = ""
    tracing.start(Process.WEB)()
    assert recording.current() is None


def test_the_end_of_a_process_sends_its_last_spans(settings: Settings) -> None:
    with Collector().open() as collector:
        settings.OTLP_ENDPOINT = f"{collector.endpoint}/v1/traces"
        stop = tracing.start(Process.SWEEP)
        recording.record(SPAN)
        stop()
        assert [(span.name, span.service) for span in collector.spans] == [("work", "regatta-sweep")]


def test_a_missing_package_ends_the_start_with_the_command_that_installs_it(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings.OTLP_ENDPOINT = "http://127.0.0.1:9/v1/traces"
    monkeypatch.delitem(sys.modules, "portal.common.tracing.otlp", raising=False)
    monkeypatch.setitem(sys.modules, "opentelemetry.exporter.otlp.proto.http.trace_exporter", None)
    with pytest.raises(CommandError, match=r"requirements-traces\.txt"):
        tracing.start(Process.WEB)


def test_every_process_starts_without_the_packages(tmp_path: Path) -> None:
    code = (
        "import sys; sys.modules['opentelemetry'] = None\n"
        "import portal.asgi, portal.celery\n"
        "from portal.management.commands import serve, sweep, work\n"
        "print('portal.common.tracing.otlp' in sys.modules)"
    )
    environ = {name: value for name, value in os.environ.items() if not name.startswith(("REGATTA_", "DJANGO_"))}
    environ["REGATTA_DATA_DIR"] = str(tmp_path)
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, env=environ, capture_output=True, text=True, timeout=60
    )
    assert (done.stdout, done.returncode) == ("False\n", 0), done.stderr
