"""Settings of tracing."""

from __future__ import annotations

import pytest
from django.core.exceptions import ImproperlyConfigured

from portal import env_tracing

NAME = "REGATTA_OTLP_ENDPOINT"


@pytest.mark.parametrize(
    ("written", "read"),
    [
        ("", ""),
        ("http://collector:4318", "http://collector:4318/v1/traces"),
        ("https://host/otlp/", "https://host/otlp/v1/traces"),
        ("http://[::1]:4318/v1/traces", "http://[::1]:4318/v1/traces"),
    ],
)
def test_a_collector_has_the_path_of_traces(monkeypatch: pytest.MonkeyPatch, written: str, read: str) -> None:
    monkeypatch.setenv(NAME, written)
    assert env_tracing.collector(NAME) == read


@pytest.mark.parametrize(
    "written", ["collector:4318", "grpc://a:4317", "http://", "http://a:x", "http://u:secret@a", "http://a/?key=secret"]
)
def test_any_other_address_is_refused_without_its_value(monkeypatch: pytest.MonkeyPatch, written: str) -> None:
    monkeypatch.setenv(NAME, written)
    with pytest.raises(ImproperlyConfigured, match=f"{NAME} is no address") as refused:
        env_tracing.collector(NAME)
    assert "secret" not in str(refused.value)


def test_headers_are_decoded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HEADERS", "Authorization=Bearer%20a%3Db%2C, X-Scope=team=1 ,")
    assert env_tracing.headers("HEADERS") == {"Authorization": "Bearer a=b,", "X-Scope": "team=1"}


@pytest.mark.parametrize("written", ["secret", "=secret", "a b=secret", "a=secret%0Ab"])
def test_other_headers_are_refused_without_their_value(monkeypatch: pytest.MonkeyPatch, written: str) -> None:
    monkeypatch.setenv("HEADERS", written)
    with pytest.raises(ImproperlyConfigured, match="HEADERS cannot be read") as refused:
        env_tracing.headers("HEADERS")
    assert "secret" not in str(refused.value)


@pytest.mark.parametrize("written", ["1.01", "-0.1", "nan", "half"])
def test_a_ratio_is_at_most_one(monkeypatch: pytest.MonkeyPatch, written: str) -> None:
    monkeypatch.setenv("RATIO", written)
    with pytest.raises(ImproperlyConfigured, match="RATIO is"):
        env_tracing.ratio("RATIO", 0.5)
