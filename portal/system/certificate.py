"""Expiry of the TLS certificate of the portal's address, read as a browser does: from the server that answers there."""

from __future__ import annotations

import ipaddress
import socket
import ssl
from urllib.parse import urlsplit

from cryptography import x509
from django.conf import settings

from portal.system import observations as seen

# For the connection and for the handshake.
SECONDS = 1.5


def certificate() -> seen.Observation:
    """Read the certificate of the first public host name of the settings."""
    if not settings.HTTPS:
        return seen.Unused("certificate")
    address = public_address(settings.ALLOWED_HOSTS, settings.CSRF_TRUSTED_ORIGINS)
    if address is None:
        return seen.Unused("host")
    host, port = address
    try:
        return seen.Certificate(host, x509.load_der_x509_certificate(_fetch(host, port)).not_valid_after_utc)
    except (OSError, ValueError) as error:
        return seen.Certificate(host, None, type(error).__name__)


def public_address(hosts: list[str], origins: list[str]) -> tuple[str, int] | None:
    """Return host and port of the portal's public address: an origin with HTTPS, else the first host name that is
    neither an address nor of this machine."""
    for origin in origins:
        parts = urlsplit(origin)
        if parts.scheme == "https" and parts.hostname and "*" not in parts.hostname:
            return parts.hostname, parts.port or 443
    return next(((host, 443) for host in hosts if _is_public_name(host)), None)


def _is_public_name(host: str) -> bool:
    if host.startswith(".") or host == "localhost" or "." not in host:
        return False
    try:
        ipaddress.ip_address(host.strip("[]"))
    except ValueError:
        return True
    return False


def _fetch(host: str, port: int) -> bytes:
    """Return the certificate. It is not verified: one that has expired must be readable as well."""
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    with (
        socket.create_connection((host, port), timeout=SECONDS) as connection,
        context.wrap_socket(connection, server_hostname=host) as encrypted,
    ):
        found = encrypted.getpeercert(binary_form=True)
    if found is None:
        raise ValueError("the server sent no certificate")
    return found
