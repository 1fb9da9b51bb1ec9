"""Template filters for amounts of resources."""

from __future__ import annotations

from django import template

from quota.resources import bare

register = template.Library()


@register.filter
def amount(value: float | None, resource: str) -> str:
    """Format an amount, such as ``16`` or ``1.5 GiB``; a dash if it is unlimited."""
    return "–" if value is None else bare(resource, value)


@register.filter
def gib(value: float | None, resource: str) -> str:
    """Format the value of a form field: memory and storage in GiB, other amounts unchanged, empty for None."""
    if value is None:
        return ""
    return f"{value / 1024**3:g}" if resource in ("memory", "storage") else f"{value:g}"
