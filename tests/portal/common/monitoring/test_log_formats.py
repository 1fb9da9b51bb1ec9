"""Log lines: every record is one line, or one line with an indented traceback, whatever its message holds."""

from __future__ import annotations

import json
import logging
import re
import sys
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from portal.common.monitoring import log_context
from portal.common.monitoring.log_formats import JsonFormatter, TextFormatter

FORGED = "harmless\n2026-01-01 00:00:00,000 INFO rbac: admin signed in"


def record(message: str, *args: Any, error: BaseException | None = None, **extra: Any) -> logging.LogRecord:
    exc_info = (type(error), error, None) if error else None
    made = logging.LogRecord("jobs.test", logging.WARNING, "file.py", 1, message, args, exc_info)
    made.__dict__.update(extra)
    return made


def as_json(made: logging.LogRecord) -> dict[str, Any]:
    line = JsonFormatter().format(made)
    assert len(line.splitlines()) == 1
    return dict(json.loads(line))


def test_a_json_line_has_time_level_logger_and_message() -> None:
    made = record("Job %s has ended.", "j1")
    made.created = 1_700_000_000.25
    assert as_json(made) == {
        "time": "2023-11-14T22:13:20.250Z",
        "level": "WARNING",
        "logger": "jobs.test",
        "message": "Job j1 has ended.",
    }


def test_a_json_line_names_the_work_of_its_context() -> None:
    with log_context.use(request_id="r1", method="GET", route="jobs", user=7, job="j1", attempt=2):
        found = as_json(record("x"))
    assert {name: found[name] for name in ("request_id", "method", "route", "user", "job", "attempt")} == {
        "request_id": "r1",
        "method": "GET",
        "route": "jobs",
        "user": 7,
        "job": "j1",
        "attempt": 2,
    }


def test_an_exception_is_one_field() -> None:
    try:
        raise ValueError(FORGED)
    except ValueError:
        made = logging.LogRecord("x", logging.ERROR, "f", 1, "failed", (), sys.exc_info())
    assert "ValueError: harmless\n2026" in as_json(made)["exception"]


def test_status_and_duration_are_fields_of_an_access_line() -> None:
    found = as_json(record("x", status=200, duration=0.25))
    assert (found["status"], found["duration"]) == (200, 0.25)


def test_other_attributes_of_a_record_are_no_fields() -> None:
    assert "request" not in as_json(record("x", request=object()))


@pytest.mark.invariant("No text in a log message or an exception can begin a log line.")
@given(st.text())
def test_no_message_breaks_a_json_line(text: str) -> None:
    with log_context.use(job=text):
        found = as_json(record("%s", text, error=ValueError(text)))
    assert found["message"] == text


@pytest.mark.invariant("No text in a log message or an exception can begin a log line.")
@given(st.text())
def test_no_message_begins_a_line_of_text(text: str) -> None:
    first, *others = TextFormatter().format(record("%s", text, error=ValueError(text))).splitlines()
    assert re.match(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d,\d+ WARNING jobs\.test: ", first)
    assert [line for line in others if not line.startswith("    ")] == []


@pytest.mark.parametrize(
    ("raw", "shown"),
    [("a\nb", "a\\nb"), ("a\rb", "a\\rb"), ("\x1b[2Ja", "\\x1b[2Ja"), ("a\x7f\x85\u2028", "a\\x7f\\x85\\u2028")],
)
def test_control_characters_are_escaped_in_text(raw: str, shown: str) -> None:
    assert TextFormatter().format(record("%s", raw)).endswith(f": {shown}")
