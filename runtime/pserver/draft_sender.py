"""The early replies to a step: blocks of the next version, sent as they are made."""

from __future__ import annotations

from collections.abc import Callable

from runtime.protocol.connection import Message
from runtime.protocol.frames import Header, Op
from runtime.protocol.replies import reply_head
from runtime.pserver.locked_shard import LockedShard
from runtime.pserver.state.eager_update import Coming, Draft
from runtime.pserver.state.published_versions import Edition, Editions


class DraftSender:
    """Sends one trainer the blocks of the version with its step as they are made, before the version is complete.

    Every message has the number of the draft that its block belongs to. The trainer discards the blocks of a dropped
    draft: the reply contains how many blocks of the last draft are part of it.
    """

    def __init__(
        self, locked: LockedShard, coming: Coming, head: Header, update: bool, send: Callable[[Message], None]
    ) -> None:
        self._locked = locked
        self._arriving = locked.shard.arriving
        self._coming = coming
        self._update = update
        self._head = reply_head(head)._replace(op=Op.AHEAD)
        self._send = send
        self._drafts = 0
        self.edition: Edition | None = None
        self.sent = 0

    def has_more(self) -> bool:
        draft = self._draft()
        return draft is not None and (draft.edition is not self.edition or draft.made > self.sent)

    def send(self) -> None:
        """Send the blocks made so far. Only the thread of the connection calls this."""
        with self._locked as shard:
            draft = self._draft()
            if draft is None:
                return
            if draft.edition is not self.edition:
                self._change(shard.state.editions, draft.edition)
            blocks = ((self._update and draft.edition.updates) or draft.edition.blocks)[self.sent :]
        for one in blocks:
            self._send(Message(self._head._replace(version=self._drafts), {}, [one]))
            self.sent += 1

    def close(self) -> None:
        """Return the edition of the draft."""
        with self._locked as shard:
            self._change(shard.state.editions, None)

    def _draft(self) -> Draft | None:
        return self._arriving.draft_with(self._coming)

    def _change(self, editions: Editions, edition: Edition | None) -> None:
        if self.edition is not None:
            editions.return_edition(self.edition)
        self.edition = None if edition is None else editions.borrow(edition)
        self.sent = 0
        self._drafts += 1
