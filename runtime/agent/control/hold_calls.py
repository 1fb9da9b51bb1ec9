"""The calls ``hold``, ``release`` and ``variables``.

``hold``: ``{"seconds"}``, 0 to 4 hours: from now on, a program of the replica that ends with an exception is held for
that long. Answers ``{"held"}``: whether one is held now. ``release`` answers ``{"released"}``. ``variables`` answers
``{"exception", "message", "complete", "frames"}``, or refuses with ``not_held``.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from runtime import contract
from runtime.agent.control import asking, processes
from runtime.agent.control.asking import NoAnswer, NotInspectable
from runtime.agent.control.call import Call, Handler, Refusal
from runtime.agent.control.hold import Hold
from runtime.inspection import variables

ASK_SECONDS = 2 * variables.SECONDS + 1.0
NOT_HELD = "not_held"
# Bytes of the frames in an answer: one frame of the control channel, with some to spare.
_LONGEST = 900 * 1024
_LARGEST = 2**63


def calls(hold: Hold | None) -> Mapping[str, Handler]:
    """Return the calls of the control channel; ``hold`` is None for a replica of the platform's own code."""

    def of(handler: Any) -> Handler:
        def call(call: Call) -> Mapping[str, Any]:
            if hold is None:
                raise Refusal("unavailable", "This replica runs no code of a user.")
            answer: Mapping[str, Any] = handler(hold, call)
            return answer

        return call

    return {"hold": of(_hold), "release": of(_release), "variables": of(_variables)}


def _hold(hold: Hold, call: Call) -> Mapping[str, Any]:
    seconds = call.request.get("seconds")
    if isinstance(seconds, bool) or not isinstance(seconds, int) or not 0 <= seconds <= contract.HOLD_SECONDS_LIMIT:
        raise Refusal("invalid", f"seconds is a whole number from 0 to {contract.HOLD_SECONDS_LIMIT}.")
    return {"held": hold.set_seconds(seconds)}


def _release(hold: Hold, call: Call) -> Mapping[str, Any]:
    return {"released": hold.release()}


def _variables(hold: Hold, call: Call) -> Mapping[str, Any]:
    held = hold.held
    process = processes.read(held.pid) if held is not None else None
    if process is None:
        raise Refusal(NOT_HELD, "The program is not held.")

    def read(answer: dict[str, Any]) -> dict[str, Any] | None:
        return bounded(answer, f"{call.settings.work}/") if answer.get("held") is True else None

    try:
        variables = asking.ask(call.settings.temporary, process, {"call": "variables"}, ASK_SECONDS, read)
    except (NoAnswer, NotInspectable):
        raise Refusal("no_answer", "The program does not answer.") from None
    if variables is None:
        raise Refusal(NOT_HELD, "The program is not held.")
    return variables


def bounded(answer: Mapping[str, Any], work: str) -> dict[str, Any]:
    """Return the answer of a process with every part checked and bounded. Pure.

    Files below ``work``, the directory of the job's code, are named relative to it.
    """
    frames: list[dict[str, Any]] = []
    complete, left = answer.get("complete") is True, _LONGEST
    for one in _listed(answer.get("frames"), variables.FRAMES):
        line = one.get("line")
        frame = {
            "file": _text(one, "file").removeprefix(work),
            "line": line if isinstance(line, int) and 0 <= line < 2**31 else 0,
            "function": _text(one, "function"),
            "variables": (shown := list[dict[str, Any]]()),
        }
        frames.append(frame)
        for found in _listed(one.get("variables"), variables.VARIABLES):
            variable = _variable(found)
            left -= len(json.dumps(variable, ensure_ascii=False).encode("utf-8", "replace"))
            if left < 0:
                complete = False
                break
            shown.append(variable)
    message = _text(answer, "message", variables.MESSAGE)
    return {"exception": _text(answer, "exception"), "message": message, "complete": complete, "frames": frames}


def _variable(found: Mapping[str, Any]) -> dict[str, Any]:
    size = found.get("size")
    known = isinstance(size, int) and not isinstance(size, bool) and 0 <= size < _LARGEST
    texts = {key: _text(found, key) for key in ("name", "type", "shape", "text")}
    return {**texts, "size": size if known else None}


def _listed(value: object, most: int) -> list[Mapping[str, Any]]:
    return [one for one in (value if isinstance(value, list) else [])[:most] if isinstance(one, dict)]


def _text(found: Mapping[str, Any], key: str, most: int = variables.TEXT) -> str:
    return str(found.get(key, ""))[:most].encode("utf-8", "replace").decode()
