"""The filter ``{{ message|localized }}``: a message of the platform in the reader's language."""

from __future__ import annotations

from django import template

from portal.common.messages import localized

register = template.Library()
register.filter("localized", localized)
