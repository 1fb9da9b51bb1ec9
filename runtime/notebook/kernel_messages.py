"""Messages of kernels as they come from the socket, and what they mean for the outputs of a cell (pure)."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from runtime.notebook.cell_outputs import Output

# Messages that appear in the output of a cell.
OUTPUT_TYPES = frozenset({"stream", "display_data", "execute_result", "error", "update_display_data", "clear_output"})
_DELIMITER = b"<IDS|MSG>"


@dataclass(frozen=True, slots=True)
class Received:
    """A message. Its content is decoded when it is read: an output of 50 MB that is left out is not."""

    header: Mapping[str, Any]
    parent: Mapping[str, Any]
    # Header, parent header, metadata, content, buffers.
    parts: Sequence[bytes]

    @property
    def type(self) -> str:
        return str(self.header["msg_type"])

    @property
    def execution(self) -> str:
        """Identifier of the request that the message belongs to; empty if there is none."""
        return str(self.parent.get("msg_id", ""))

    @property
    def size(self) -> int:
        return len(self.parts[3])

    def content(self) -> dict[str, Any]:
        return dict(json.loads(self.parts[3]))


def parse(frames: Sequence[bytes]) -> Received:
    """Return the message of the frames of a socket.

    Its signature is not checked: only the kernel and this process can open the socket.
    """
    parts = frames[list(frames).index(_DELIMITER) + 2 :]
    return Received(json.loads(parts[0]), json.loads(parts[1]), parts)


def output_of(kind: str, content: Mapping[str, Any]) -> Output:
    """Return the output of a message in the notebook format."""
    match kind:
        case "stream":
            return {"output_type": "stream", "name": content["name"], "text": content["text"]}
        case "error":
            fields = {name: content[name] for name in ("ename", "evalue", "traceback")}
            return {"output_type": "error", **fields}
        case "execute_result":
            return {"output_type": kind, "execution_count": content["execution_count"], **_shown(content)}
    return {"output_type": "display_data", **_shown(content)}


def display_id(content: Mapping[str, Any]) -> str | None:
    """Return the identifier by which a display can be updated, if it has one."""
    return (content.get("transient") or {}).get("display_id")


def _shown(content: Mapping[str, Any]) -> dict[str, Any]:
    return {"data": content["data"], "metadata": content.get("metadata") or {}}
