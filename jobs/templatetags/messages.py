"""``{{ message|localized }}``: what the platform says, in the reader's language."""

from __future__ import annotations

from django import template

from portal.common.messages import localized

register = template.Library()
register.filter("localized", localized)
