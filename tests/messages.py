"""Messages in texts, whatever their parameters."""

from __future__ import annotations

import html
import re

from runtime.messages import Template

_PLACE = re.compile(r"\{(\w+)\}")


def pattern(template: Template, **params: object) -> str:
    """Return a regular expression for messages of a template, as in ``pytest.raises(match=pattern(messages.LATE))``.

    A parameter that is given must have this value; others may have any.
    """
    parts = _PLACE.split(template.text)  # texts, and between them names
    parts[::2] = map(re.escape, parts[::2])
    parts[1::2] = [re.escape(str(params[name])) if name in params else ".*?" for name in parts[1::2]]
    return "".join(parts)


def either(*templates: Template) -> str:
    """Return a regular expression for messages of any of the templates."""
    return "|".join(map(pattern, templates))


def mentions(text: str, template: Template, **params: object) -> bool:
    """Return whether a text or a page of HTML holds a message of the template, with these parameters."""
    return re.search(pattern(template, **params), html.unescape(text), re.DOTALL) is not None
