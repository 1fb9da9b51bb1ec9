"""A witness inside a trainer: it records which process of a server answered each of its steps."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any, Protocol

from runtime.protocol.client import Client
from runtime.protocol.connection import Message
from runtime.trainer.servers.server_connection import ServerConnection

if TYPE_CHECKING:
    import pytest


class Notes(Protocol):
    def note(self, kind: str, **facts: Any) -> None: ...


class ConnectionWitness:
    """Records for each answered request every process whose answer counted. Failed tries are repeated."""

    def __init__(self, recorder: Notes) -> None:
        self._recorder = recorder
        self._answered: dict[Client, list[int]] = {}

    def watch(self, patch: pytest.MonkeyPatch | None = None) -> None:
        """Record from now on, until ``patch`` is undone if there is one."""
        put = patch.setattr if patch else setattr
        put(Client, "reply", self._hearing(Client.reply))
        put(ServerConnection, "_receive", self._beginning(ServerConnection._receive))
        put(ServerConnection, "reply", self._callbacks(ServerConnection.reply))

    def _hearing(self, method: Any) -> Any:
        @functools.wraps(method)
        def reply(client: Client, *arguments: Any) -> Message:
            answer: Message = method(client, *arguments)
            self._answered.setdefault(client, []).append(answer.head.incarnation)
            return answer

        return reply

    def _beginning(self, method: Any) -> Any:
        @functools.wraps(method)
        def receive(connection: ServerConnection, message: Message, *arguments: Any) -> Message:
            self._answered[connection._client] = []
            answer: Message = method(connection, message, *arguments)
            return answer

        return receive

    def _callbacks(self, method: Any) -> Any:
        @functools.wraps(method)
        def answer(connection: ServerConnection, message: Message) -> Message:
            reply: Message = method(connection, message)
            name, step = connection._client._name, message.head.seq
            for incarnation in sorted(set(self._answered.pop(connection._client))):
                self._recorder.note("answered", step=step, server=name, incarnation=incarnation)
            return reply

        return answer
