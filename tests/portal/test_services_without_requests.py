"""Services take no HTTP request: the origin of a change comes from the context of the audit log."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
_LAYER = (
    "*/services.py",
    "*/services/**/*.py",
    "*/ledger.py",
    "*/storage.py",
    "datasets/uploads/**/*.py",
    "datasets/indexing/**/*.py",
    "datasets/streams/**/*.py",
    "jobs/reconcile/**/*.py",
    "jobs/maintenance/**/*.py",
    "rbac/account_admin.py",
    "rbac/audit/**/*.py",
    "rbac/emails/mail.py",
    "rbac/namespaces/**/*.py",
    "rbac/sign_in/**/*.py",
    "rbac/tokens.py",
)
# Sessions of browsers and django-axes are functions of a request: these begin and end sessions, and count guesses.
_OF_REQUESTS = frozenset(f"rbac/sign_in/{name}.py" for name in ("impersonation", "password_guessing", "sign_in"))
_REQUESTS = frozenset({"HttpRequest", "ASGIRequest", "WSGIRequest", "Request"})


def modules() -> list[str]:
    found = {path.relative_to(ROOT).as_posix() for pattern in _LAYER for path in ROOT.glob(pattern)}
    return sorted(path for path in found if path.startswith(("rbac/", "quota/", "datasets/", "jobs/")))


def requests_in(source: str) -> set[str]:
    """Return the request classes that a module imports or names."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith(("django", "rest_framework")):
            found |= {alias.name for alias in node.names} & _REQUESTS
        elif isinstance(node, ast.Attribute):
            found |= {node.attr} & _REQUESTS
    return found


@pytest.mark.parametrize("module", [each for each in modules() if each not in _OF_REQUESTS])
def test_a_module_of_services_imports_no_request(module: str) -> None:
    assert requests_in((ROOT / module).read_text()) == set()


@pytest.mark.parametrize("module", sorted(_OF_REQUESTS))
def test_each_exception_is_still_one(module: str) -> None:
    assert requests_in((ROOT / module).read_text()) == {"HttpRequest"}


@pytest.mark.parametrize(
    "source",
    ["from django.http import HttpRequest", "from django.http.request import HttpRequest as R", "http.Request"],
)
def test_a_request_is_found_however_it_is_imported(source: str) -> None:
    assert requests_in(source)
