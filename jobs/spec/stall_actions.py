"""Values of the field ``on_stall``: what happens to a job that makes no progress. Pure."""

from __future__ import annotations

from typing import Final

NOTIFY: Final = "notify"  # an event and the message of the job
RESTART: Final = "restart"  # also: the replica that the diagnosis names is started again in the same attempt
FAIL: Final = "fail"  # also: the attempt ends
NAMES: Final = (NOTIFY, RESTART, FAIL)
