"""Removal of secrets from texts."""

from __future__ import annotations

import base64
from typing import Any
from urllib.parse import quote, quote_plus

import pytest

from portal.system import redaction
from portal.system.redaction import REMOVED, Redaction, redacted

SECRET = "pa ss/wörd+&=?1"


@pytest.mark.parametrize(
    "form",
    [
        SECRET,
        quote(SECRET, safe=""),
        quote(SECRET),
        quote_plus(SECRET),
        base64.b64encode(SECRET.encode()).decode(),
        base64.urlsafe_b64encode(SECRET.encode()).decode(),
    ],
)
def test_a_secret_is_removed_in_each_of_its_forms(form: str) -> None:
    assert form not in Redaction([SECRET])(f"before {form} after")


@pytest.mark.parametrize("before", ["", "x", "xy", "xyz"])
def test_a_secret_within_a_longer_text_in_base64_is_removed(before: str) -> None:
    text = base64.b64encode(f"{before}{SECRET}:more".encode()).decode()
    assert REMOVED in Redaction([SECRET])(text)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("postgresql://regatta:hunter2@db:5432/x", f"postgresql://{REMOVED}@db:5432/x"),
        ("redis://:hunter2@cache/0", f"redis://{REMOVED}@cache/0"),
        ("password=hunter2, next", f"password={REMOVED}, next"),
        ("Authorization: Bearer abcdefgh1234", f"Authorization: {REMOVED}"),
        ("rgt_abcdefghijkl was used", f"{REMOVED} was used"),
        ("https://train.example.org/jobs", "https://train.example.org/jobs"),
    ],
)
def test_what_looks_like_a_credential_is_removed_even_if_it_is_not_known(text: str, expected: str) -> None:
    assert Redaction([])(text) == expected


def test_very_short_values_are_kept_because_words_contain_them() -> None:
    assert Redaction(["a", "", "abc"])("a banana, abc") == "a banana, abc"


def test_texts_at_any_depth_of_a_document_are_redacted() -> None:
    document = {"a": [{"b": ("hunter22", 1, None)}], "hunter22": True}
    assert redacted(document, Redaction(["hunter22"])) == {"a": [{"b": [REMOVED, 1, None]}], REMOVED: True}


def test_secrets_of_settings_and_environment_are_known(settings: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    settings.EMAIL_HOST_PASSWORD = "of-the-mail-server"
    settings.SECRET_KEY_FALLBACKS = ["an-earlier-key", "an-older-key"]
    settings.COORDINATION = "etcd://root:of%2Fetcd@one,two/x"
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "of-the-bucket")
    redact = redaction.of_this_process()
    assert redact("of-the-mail-server, of/etcd, of%2Fetcd, of-the-bucket") == ", ".join([REMOVED] * 4)
    assert redact("an-earlier-key, an-older-key") == ", ".join([REMOVED] * 2)
