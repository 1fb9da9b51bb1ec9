"""Messages in texts, whatever their parameters."""

from __future__ import annotations

import html
import re

from runtime.messages import Template

_PLACE = re.compile(r"\{\w+\}")


def pattern(template: Template) -> str:
    """Return a regular expression for messages of a template, as in ``pytest.raises(match=pattern(messages.LATE))``."""
    return ".*?".join(map(re.escape, _PLACE.split(template.text)))


def mentions(text: str, template: Template) -> bool:
    """Return whether a text or a page of HTML holds a message of the template."""
    return re.search(pattern(template), html.unescape(text), re.DOTALL) is not None
