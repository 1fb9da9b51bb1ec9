"""Formats of log lines: text for people, JSON for collectors. No message can begin a line of its own."""

from __future__ import annotations

import json
import logging
import re
from datetime import UTC, datetime
from typing import Any

from portal.common.monitoring import log_context

# C0 and C1 controls and the line separators of Unicode. A traceback keeps its line feeds, which are indented.
_CONTROLS = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029]")
# Facts that a call of the log passes as ``extra``.
_EXTRA = ("status", "duration")


class TextFormatter(logging.Formatter):
    """``time LEVEL logger: message``; control characters are escaped, and lines of a traceback are indented."""

    def __init__(self) -> None:
        super().__init__("%(asctime)s %(levelname)s %(name)s: %(message)s")

    def formatMessage(self, record: logging.LogRecord) -> str:
        return _escaped(super().formatMessage(record))

    def formatException(self, ei: Any) -> str:
        return _indented(super().formatException(ei))

    def formatStack(self, stack_info: str) -> str:
        return _indented(stack_info)


class JsonFormatter(logging.Formatter):
    """One JSON object a line: time (RFC 3339, UTC), level, logger, message, known facts of the context, exception."""

    def format(self, record: logging.LogRecord) -> str:
        at = datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds")
        document = {
            "time": at.replace("+00:00", "Z"),
            "level": record.levelname,
            "logger": record.name,
            "message": record.getMessage(),
            **log_context.current().fields(),
            **{name: record.__dict__[name] for name in _EXTRA if name in record.__dict__},
        }
        if record.exc_info:
            document["exception"] = self.formatException(record.exc_info)
        elif record.exc_text:
            document["exception"] = record.exc_text
        if record.stack_info:
            document["stack"] = record.stack_info
        # ASCII only: some readers also end a line at the separators of Unicode.
        return json.dumps(document, ensure_ascii=True, default=str)


def _escaped(text: str) -> str:
    return _CONTROLS.sub(lambda found: repr(found[0])[1:-1], text)


def _indented(text: str) -> str:
    return "\n".join(f"    {_escaped(line)}" for line in text.split("\n"))
