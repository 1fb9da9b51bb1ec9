"""What the API document says of every call alike: an answer that is no success is a problem document."""

from __future__ import annotations

from typing import Any

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
        "detail": {**_TEXT, "description": "A sentence that says what to do."},
        "errors": {
            "type": "object",
            "description": "With validation_failed: the sentences of each field.",
            "additionalProperties": {"type": "array", "items": _TEXT},
        },
    },
    "additionalProperties": True,
}
_ANSWER = {
    "description": "Refused; the code says why.",
    "content": {"application/problem+json": {"schema": {"$ref": "#/components/schemas/Problem"}}},
}


def with_problems(result: dict[str, Any], **_: Any) -> dict[str, Any]:
    """Give every operation the answer that refuses it."""
    result.setdefault("components", {}).setdefault("schemas", {})["Problem"] = _PROBLEM
    for operations in result["paths"].values():
        for method, operation in operations.items():
            if method in _METHODS:
                operation["responses"].setdefault("default", _ANSWER)
    return result
