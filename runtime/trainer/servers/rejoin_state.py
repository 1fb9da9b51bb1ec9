"""The state that a trainer offers to the process that replaces a server. Pure."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field, replace
from typing import Any

from runtime.checkpoint.data_position import Position, Progress
from runtime.parameters.declaration import Declaration
from runtime.parameters.messages import Offer, Standing
from runtime.protocol.connection import Message
from runtime.protocol.frames import Op


@dataclass
class RejoinState:
    """A trainer's position with one server, by the requests that were answered.

    It is sent to the process that takes the server's place. ``offer`` is complete but for the version of the values
    (``HeldValues.version``), ``standing`` is what these contain, ``progress`` this trainer's part of the data.
    """

    offer: Offer = field(default_factory=Offer)
    standing: Standing = field(default_factory=Standing)
    progress: Progress = field(default_factory=Progress)

    @property
    def is_in_pass(self) -> bool:
        """Whether this trainer has begun a pass: the next version of a synchronous training waits for it."""
        return self.offer.begun > self.offer.ended

    def record(self, request: Message, reply: Message) -> None:
        """Record a request and its reply."""
        offer = self.offer
        if reply.body.get("values") and "standing" in reply.body:
            self.standing = Standing.from_json(reply.body["standing"])
        if request.head.op is Op.BEGIN_PASS:
            offer = replace(offer, begun=request.body["pass"], ended=request.body["pass"] - 1)
        elif request.head.op is Op.END_PASS:
            ended = max(offer.ended, request.body["pass"])
            offer = replace(offer, begun=ended, ended=ended)
        if "at" in request.body:
            self.progress.note(Position.from_json(request.body["at"]))
        self.offer = replace(offer, seen=reply.head.version, seq=request.head.seq)

    def offer_fields(self, declaration: Declaration, held: int) -> dict[str, Any]:
        """The fields of an offer to a new process; ``held`` is the version of the complete values."""
        return {
            "declaration": declaration.to_json(),
            "offer": asdict(replace(self.offer, held=held)),
            "had": self.progress.to_json(),
        }

    def reseed_fields(self) -> dict[str, Any]:
        """The fields of the request that restores the lost values."""
        return {"standing": self.standing.to_json()}
