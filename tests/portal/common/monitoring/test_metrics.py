"""The table of metrics: names, labels, and what each process serves."""

from __future__ import annotations

import re

import pytest

from portal.common.monitoring import metrics
from portal.common.monitoring.metrics import TABLE, Definition, Process
from scripts import metrics_reference

# Labels whose values could name a person, a job or a request.
_UNBOUNDED = {"job", "user", "namespace", "path", "url", "request_id", "attempt", "replica", "address"}

each_definition = pytest.mark.parametrize("definition", TABLE, ids=lambda definition: definition.name)


@each_definition
def test_a_name_has_the_prefix_and_the_suffix_of_its_kind(definition: Definition) -> None:
    assert re.fullmatch(r"regatta_[a-z0-9]+(_[a-z0-9]+)*", definition.name)
    assert definition.name.endswith("_total") == (definition.kind == "counter")


@pytest.mark.invariant("No label of a metric names a user, a namespace, a job, an address or a path.")
@each_definition
def test_a_label_is_bounded(definition: Definition) -> None:
    assert not _UNBOUNDED & set(definition.labels)


def test_no_name_is_there_twice() -> None:
    names = [definition.name for definition in TABLE]
    assert len(names) == len(set(names))


@pytest.mark.parametrize("process", Process)
def test_a_process_serves_its_own_metrics_and_no_others(process: Process) -> None:
    served = set(re.findall(r"^# HELP (regatta_\S+)", metrics.text(metrics.registry_of(process)).decode(), re.M))
    assert served == {definition.name for definition in TABLE if process in definition.processes}


def test_a_process_serves_its_memory_and_descriptors() -> None:
    text = metrics.text(metrics.registry_of(Process.SWEEP)).decode()
    assert "process_resident_memory_bytes " in text
    assert "process_open_fds " in text


def test_an_unknown_value_of_a_label_becomes_other() -> None:
    assert [metrics.bounded(value, {"GET"}) for value in ("GET", "BREW")] == ["GET", "other"]


def test_the_page_of_metrics_is_up_to_date() -> None:
    assert metrics_reference.PAGE.read_text(encoding="utf-8") == metrics_reference.page(), metrics_reference.COMMAND


def test_every_metric_has_a_row_on_the_page() -> None:
    assert [d.name for d in TABLE if f"| `{d.name}` |" not in metrics_reference.page()] == []
