"""``{{ message|told }}``: what the platform says, in the reader's language."""

from __future__ import annotations

from django import template

from portal.common.messages import told

register = template.Library()
register.filter("told", told)
