"""Entry point of a notebook's replica: ``python -m runtime.notebook``."""

from __future__ import annotations

from runtime.notebook import application, settings

if __name__ == "__main__":
    application.run(settings.read())
