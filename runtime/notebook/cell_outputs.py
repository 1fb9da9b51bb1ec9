"""Outputs of one execution of a cell, changed by operations and limited in size (pure).

Operations are what the record stores and what pages receive; outputs are those of the notebook format.

==========  ==========================================================================================
operation   fields
==========  ==========================================================================================
queued      ``cell, execution, session, direct``: an execution begins; earlier outputs of the cell go
count       ``count``: number in the prompt
append      ``output``; the text of a stream is added to a stream of the same name that is last
set         ``index, output``: replaces an output
clear       all outputs go
end         the execution has ended
==========  ==========================================================================================
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from runtime.notebook.stream_text import StreamText

Output = dict[str, Any]
Operation = dict[str, Any]

# What an output costs in addition to its contents: a million empty ones are limited too.
OVERHEAD = 16
# Errors are stored beyond the limit, so that the reason of a failure is never left out.
LARGEST_ERROR = 64 << 10


class CellOutputs:
    """Outputs up to ``limit`` characters; beyond it a message says how much was left out."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._outputs: list[Output | _Stream] = []
        self._size = 0
        self._left_out = 0
        self._note: int | None = None

    @property
    def full(self) -> bool:
        """Whether further outputs are left out, until they are cleared."""
        return self._note is not None

    def __len__(self) -> int:
        return len(self._outputs)

    def outputs(self) -> list[Output]:
        """Return the outputs in the notebook format."""
        return [output.as_output() if isinstance(output, _Stream) else output for output in self._outputs]

    def leave_out(self, size: int) -> None:
        """Count an output that is not stored because the outputs are full."""
        self._left_out += size

    def apply(self, operation: Operation) -> list[Operation]:
        """Change the outputs. Return the operations that have the same effect on outputs without a limit."""
        match operation["op"]:
            case "append":
                return self._append(operation)
            case "set":
                return self._set(operation)
            case "queued" | "clear":
                self._outputs, self._size, self._left_out, self._note = [], 0, 0, None
            case "end" if self._note is not None:
                return [self._count_note(operation, self._note), operation]
        return [operation]

    def _append(self, operation: Operation) -> list[Operation]:
        output = operation["output"]
        size = size_of(output)
        if self.full or self._size + size > self._limit:
            if output["output_type"] == "error" and size <= LARGEST_ERROR:
                self._outputs.append(output)
                return [operation]
            return self._overflow(operation, size)
        self._add(output)
        return [operation]

    def _add(self, output: Output) -> None:
        if output["output_type"] != "stream":
            self._outputs.append(output)
            self._size += size_of(output)
            return
        last = self._outputs[-1] if self._outputs else None
        if not isinstance(last, _Stream) or last.name != output["name"]:
            last = _Stream(output["name"])
            self._outputs.append(last)
        before = last.text.length
        last.text.add(output["text"])
        self._size += last.text.length - before + OVERHEAD

    def _overflow(self, operation: Operation, size: int) -> list[Operation]:
        output = operation["output"]
        if self.full:
            self._left_out += size
            return []
        made = []
        if output["output_type"] == "stream" and (rest := self._limit - self._size - OVERHEAD) > 0:
            begin = {**output, "text": output["text"][:rest]}
            self._add(begin)
            made.append({**operation, "output": begin})
            size -= len(begin["text"])
        self._left_out += size
        self._note = len(self._outputs)
        note = _note(self._limit, None)
        self._outputs.append(note)
        return [*made, {**operation, "output": note}]

    def _set(self, operation: Operation) -> list[Operation]:
        index = operation["index"]
        end = len(self._outputs) if self._note is None else self._note
        if not 0 <= index < end or isinstance(self._outputs[index], _Stream):
            return []
        grown = size_of(operation["output"]) - size_of(self._outputs[index])
        if grown > 0 and self._size + grown > self._limit:
            self._left_out += grown
            return []
        self._outputs[index] = operation["output"]
        self._size += grown
        return [operation]

    def _count_note(self, operation: Operation, index: int) -> Operation:
        note = _note(self._limit, self._left_out)
        self._outputs[index] = note
        return {**operation, "op": "set", "index": index, "output": note}


class _Stream:
    def __init__(self, name: str) -> None:
        self.name = name
        self.text = StreamText()

    def as_output(self) -> Output:
        return {"output_type": "stream", "name": self.name, "text": str(self.text)}


def size_of(output: Mapping[str, Any] | _Stream) -> int:
    """Return what an output counts towards the limit, in characters."""
    if isinstance(output, _Stream):
        return output.text.length + OVERHEAD
    if output["output_type"] == "stream":
        return len(output["text"]) + OVERHEAD
    return len(json.dumps(output, ensure_ascii=False)) + OVERHEAD


def _note(limit: int, left_out: int | None) -> Output:
    text = f"The output of this cell is longer than {readable(limit)}."
    text += " What follows is left out." if left_out is None else f" {readable(left_out)} were left out."
    return {"output_type": "display_data", "data": {"text/plain": text}, "metadata": {}}


def readable(size: int) -> str:
    """Return a number of bytes for a person: ``1.5 GB``."""
    for unit, factor in (("GB", 10**9), ("MB", 10**6), ("kB", 10**3)):
        if size >= factor:
            return f"{size / factor:.1f}".removesuffix(".0") + f" {unit}"
    return f"{size} bytes"
