"""The calls that an agent answers, by name."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from runtime import contract
from runtime.agent.control.call import Call, Handler, Refusal
from runtime.agent.control.recording import objects, samples
from runtime.agent.control.stacks import stacks

__all__ = ["CALLS", "STREAMS", "Call", "Handler", "Refusal"]


def _ping(call: Call) -> Mapping[str, Any]:
    return {"replica": call.settings.replica, "start_number": call.settings.start_number, "release": contract.RELEASE}


CALLS: Mapping[str, Handler] = {"ping": _ping, "stacks": stacks, "samples": samples, "objects": objects}
# Calls (``runtime.agent.tunnel``) with a limit of their own, because a page opens many of them at once.
STREAMS = frozenset({"connect"})
