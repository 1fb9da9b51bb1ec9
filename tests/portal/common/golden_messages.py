"""Writer of the golden file of messages: ``python -m tests.portal.common.golden_messages``."""

from __future__ import annotations

from tests.portal.common.test_message_catalogues import GOLDEN, golden_lines

if __name__ == "__main__":
    GOLDEN.write_text("\n".join(golden_lines()) + "\n", encoding="utf-8")
