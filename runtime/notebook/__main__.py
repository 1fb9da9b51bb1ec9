"""Entry point of a notebook's replica: ``python -m runtime.notebook``."""

from __future__ import annotations

import sys

if __name__ == "__main__":
    # jsonschema imports it to check addresses in events, for three seconds of CPU time; without it there is no check.
    sys.modules["rfc3987_syntax"] = None  # type: ignore[assignment]
    from runtime.notebook import application, settings

    application.run(settings.read())
