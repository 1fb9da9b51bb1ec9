"""Amounts of resources in templates."""

from __future__ import annotations

from django import template

from quota.resources import bare

register = template.Library()


@register.filter
def amount(value: float | None, resource: str) -> str:
    """``16``, ``1.5 GiB``; a dash where there is no end."""
    return "–" if value is None else bare(resource, value)


@register.filter
def gib(value: float | None, resource: str) -> str:
    """What stands in a field of a form: memory in GiB, everything else as it is, empty where there is none."""
    if value is None:
        return ""
    return f"{value / 1024**3:g}" if resource in ("memory", "storage") else f"{value:g}"
