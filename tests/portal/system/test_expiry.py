"""Expiry of the TLS certificate and of the portal's credentials."""

from __future__ import annotations

import base64
import json
import socket
import ssl
import threading
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from portal.system import certificate, credentials
from portal.system.observations import Certificate, Credential, Unused

DATE = datetime(2026, 12, 24, 18, 0, tzinfo=UTC)


# --- Certificate -----------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("hosts", "origins", "expected"),
    [
        (["127.0.0.1", "localhost", "[::1]"], [], None),
        (["127.0.0.1", ".example.org", "train.example.org"], [], ("train.example.org", 443)),
        (["train.example.org"], ["https://train.example.org:8443"], ("train.example.org", 8443)),
        (["train.example.org"], ["http://old.example.org", "https://*.example.org"], ("train.example.org", 443)),
        (["10.0.0.7", "portal-web"], [], None),
    ],
)
def test_the_public_address_is_that_of_the_settings(hosts: list[str], origins: list[str], expected: Any) -> None:
    assert certificate.public_address(hosts, origins) == expected


def test_without_https_there_is_no_certificate(settings: Any) -> None:
    settings.HTTPS = False
    assert certificate.certificate() == Unused("certificate")


@pytest.fixture
def tls_server(tmp_path: Path) -> Iterator[int]:
    """The port of a server with a self-signed certificate that expires on ``DATE``."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "localhost")])
    made = x509.CertificateBuilder().subject_name(name).issuer_name(name).public_key(key.public_key())
    made = made.serial_number(1).not_valid_before(DATE - timedelta(days=90)).not_valid_after(DATE)
    pem = made.sign(key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM)
    pem += key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    (tmp_path / "server.pem").write_bytes(pem)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(tmp_path / "server.pem")
    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=_greet, args=(listener, context), daemon=True)
        thread.start()
        yield listener.getsockname()[1]
    thread.join(5)


def _greet(listener: socket.socket, context: ssl.SSLContext) -> None:
    try:
        with listener.accept()[0] as connection, context.wrap_socket(connection, server_side=True):
            pass
    except OSError:
        return


def test_the_date_is_read_from_the_server_that_answers_at_the_address(settings: Any, tls_server: int) -> None:
    settings.HTTPS, settings.CSRF_TRUSTED_ORIGINS = True, [f"https://localhost:{tls_server}"]
    assert certificate.certificate() == Certificate("localhost", DATE)


def test_an_address_that_does_not_answer_gives_the_class_of_the_error(settings: Any) -> None:
    settings.HTTPS, settings.CSRF_TRUSTED_ORIGINS = True, ["https://localhost:1"]
    assert certificate.certificate() == Certificate("localhost", None, "ConnectionRefusedError")


# --- Credentials -----------------------------------------------------------------------------------------------------
def encoded(document: Any) -> str:
    return base64.urlsafe_b64encode(json.dumps(document).encode()).decode().rstrip("=")


JWT = f"{encoded({'alg': 'RS256'})}.{encoded({'exp': DATE.timestamp()})}.c2lnbmF0dXJl"
AMAZON = base64.b64encode(json.dumps({"payload": "x", "expiration": int(DATE.timestamp())}).encode()).decode()


@pytest.mark.parametrize(
    ("token", "expected"),
    [
        (JWT, DATE),
        (AMAZON, DATE),
        ("hunter2", None),
        ("", None),
        ("a.b.c", None),
        (f"x.{encoded({'exp': 'soon'})}.y", None),
        (f"x.{encoded({'exp': 1e300})}.y", None),
        (f"x.{encoded([1])}.y", None),
    ],
)
def test_the_expiry_of_a_token_is_read_from_it(token: str, expected: datetime | None) -> None:
    assert credentials.expiry(token) == expected


@pytest.mark.parametrize(
    ("document", "expected"),
    [
        ({"auths": {"r": {"auth": base64.b64encode(f"AWS:{AMAZON}".encode()).decode()}}}, [DATE]),
        ({"auths": {"r": {"identitytoken": JWT}, "s": {"auth": "!!"}}}, [DATE]),
        ({"auths": {"r": {"auth": base64.b64encode(b"user:password").decode()}, "s": 7}}, []),
        ({"auths": []}, []),
        ([], []),
    ],
)
def test_the_expiry_of_registry_credentials_is_read_from_their_tokens(document: Any, expected: list[datetime]) -> None:
    assert credentials.expiries_of_registries(json.dumps(document)) == expected


@pytest.fixture(autouse=True)
def _outside_a_cluster(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(credentials, "SERVICE_ACCOUNT", tmp_path / "none")


def test_a_file_of_credentials_without_a_date_is_shown_without_one(settings: Any, tmp_path: Path) -> None:
    file = tmp_path / "config.json"
    file.write_text("no JSON")
    settings.REGISTRY_CREDENTIALS, settings.KUBERNETES_PULL_CREDENTIALS = str(file), str(tmp_path / "missing")
    assert credentials.credentials() == [Credential("registry", None)]


def test_the_token_of_the_service_account_is_renewed_by_the_cluster(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "token"
    file.write_text(JWT)
    monkeypatch.setattr(credentials, "SERVICE_ACCOUNT", file)
    assert credentials.credentials() == [Credential("service-account", DATE, renewed=True)]
