"""No file of the repository contains a credential."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
# Private keys, and tokens that are recognised by their prefix, as in secret scanners.
CREDENTIAL = re.compile(
    rb"-----BEGIN [A-Z ]*PRIVATE KEY-----\s+[A-Za-z0-9+/=]{40}"
    rb"|\bAKIA[0-9A-Z]{16}\b"
    rb"|\bgh[pousr]_[A-Za-z0-9]{36}\b"
    rb"|\bglpat-[A-Za-z0-9_-]{20}\b"
    rb"|\bxox[abprs]-[A-Za-z0-9-]{20,}"
    rb"|\bsk_live_[A-Za-z0-9]{24,}"
    rb"|//[^/\s:@{}$<>]+:[^/\s:@{}$<>]{16,}@[a-z0-9.-]+\.(?:com|org|net|io|cn)"
)


def test_no_file_contains_a_credential() -> None:
    names = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, check=True).stdout.split(b"\0")
    files = [ROOT / name.decode() for name in names if name]
    found = [str(path) for path in files if path.is_file() and CREDENTIAL.search(path.read_bytes())]
    assert (len(files) > 1000, found) == (True, [])


@pytest.mark.parametrize(
    "text",
    [
        "-----BEGIN RSA PRIVATE " + "KEY-----\n" + "MIIE" * 16,
        "AKIA" + "ABCDEFGHIJKLMNOP",
        "ghp_" + "a1" * 18,
        "https://" + "robot:0123456789abcdef" + "@registry.example.com",
    ],
    ids=["private key", "cloud key", "token", "password in an address"],
)
def test_a_credential_is_recognised(text: str) -> None:
    assert CREDENTIAL.search(text.encode())
