"""Additions to the API document that concern all calls: every error is a problem document."""

from __future__ import annotations

from typing import Any

from rbac.scopes import DESCRIPTIONS, Scope, roles_with

_METHODS = frozenset({"get", "put", "post", "delete", "patch"})
_TEXT = {"type": "string"}
_PROBLEM = {
    "type": "object",
    "description": "What went wrong (RFC 9457). Some codes bring more members, such as the numbers of a quota.",
    "required": ["type", "title", "status", "code", "detail"],
    "properties": {
        "type": {**_TEXT, "description": "urn:regatta:problem: and the code"},
        "title": _TEXT,
        "status": {"type": "integer"},
        "code": {**_TEXT, "description": "A stable word for programs, such as quota_exceeded."},
        "detail": {**_TEXT, "description": "A message that says what to do."},
        "request_id": {**_TEXT, "description": "As in X-Request-ID, and in the portal's log."},
        "errors": {
            "type": "object",
            "description": "With validation_failed: the messages of each field.",
            "additionalProperties": {"type": "array", "items": _TEXT},
        },
    },
    "additionalProperties": True,
}
_ANSWER = {
    "description": "Refused; the code says why.",
    "content": {"application/problem+json": {"schema": {"$ref": "#/components/schemas/Problem"}}},
}


def with_scopes(result: dict[str, Any], **_: Any) -> dict[str, Any]:
    """Describe what each scope of a token allows and which roles hold it, from the one table of scopes."""
    rows = "\n".join(f"| `{scope}` | {text} | {_holders(scope)} |" for scope, text in DESCRIPTIONS.items())
    table = f"| scope | allows | held by |\n|---|---|---|\n{rows}"
    result["info"]["description"] += f"\n\nA token may be bound to some of these scopes:\n\n{table}"
    return result


def _holders(scope: Scope) -> str:
    return ", ".join(roles_with(scope)) or "the account itself"


# Bodies of DELETE, which the generator leaves out: by path.
_DELETE_BODIES = {
    "/api/v1/namespaces/{ns}": {
        "type": "object",
        "required": ["name"],
        "properties": {"name": {**_TEXT, "description": "The name of the namespace again."}},
    }
}


def with_bodies_of_delete(result: dict[str, Any], **_: Any) -> dict[str, Any]:
    """Describe the request bodies of DELETE calls."""
    for path, schema in _DELETE_BODIES.items():
        body = {"required": True, "content": {"application/json": {"schema": schema}}}
        result["paths"][path]["delete"]["requestBody"] = body
    return result


def with_problems(result: dict[str, Any], **_: Any) -> dict[str, Any]:
    """Add the error response to every operation."""
    result.setdefault("components", {}).setdefault("schemas", {})["Problem"] = _PROBLEM
    for operations in result["paths"].values():
        for method, operation in operations.items():
            if method in _METHODS:
                operation["responses"].setdefault("default", _ANSWER)
    return result
