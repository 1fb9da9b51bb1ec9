"""The migrations of ``jobs``, and those of its next release."""

from pathlib import Path

__path__.append(str(Path(__file__).resolve().parents[5] / "jobs" / "migrations"))
