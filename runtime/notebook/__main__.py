"""Entry point of a notebook's replica: ``python -m runtime.notebook``."""

from __future__ import annotations

import sys

if __name__ == "__main__":
    # jsonschema imports it if it can, to check international addresses, which Jupyter's schemas do not have. The import
    # compiles a grammar: most of the time that the server needs to start.
    sys.modules["rfc3987_syntax"] = None  # type: ignore[assignment]
    from runtime.notebook import application, settings

    application.run(settings.read())
