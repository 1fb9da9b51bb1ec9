"""State shared by the commands of one call: the context, and access to the network, the clock and the browser."""

from __future__ import annotations

import time
import webbrowser
from collections.abc import Callable
from dataclasses import dataclass

import click
import httpx

from regatta import config
from regatta.api import Client
from regatta.config import Context
from regatta.errors import NotSignedIn


@dataclass(frozen=True)
class Outside:
    """Transport of requests (None: the network), waiting, and opening a page for the user."""

    transport: httpx.BaseTransport | None = None
    sleep: Callable[[float], None] = time.sleep
    clock: Callable[[], float] = time.monotonic
    browse: Callable[[str], bool] = webbrowser.open


@dataclass
class Session:
    """State of one call. ``asked`` is the context that the call names."""

    outside: Outside
    asked: str = ""

    @property
    def name(self) -> str:
        return config.name_in_use(self.asked)

    def context(self) -> Context:
        return config.in_use(self.asked)

    def portal(self) -> Client:
        """Return a client of the context's portal. Raises NotSignedIn if there is no token."""
        context = self.context()
        if not context.token:
            how = f"Run `regatta login --server {context.server}`."
            raise NotSignedIn(f"You are not signed in to {context.server}. {how}")
        return self.reach(context)

    def reach(self, context: Context) -> Client:
        outside = self.outside
        return Client(
            context.server,
            context.token,
            namespace=context.namespace,
            transport=outside.transport,
            sleep=outside.sleep,
            clock=outside.clock,
        )

    def keep(self, name: str, context: Context) -> None:
        """Store a context and make it the current one."""
        settings = config.load().with_context(name, context)
        config.save(config.Settings(name, settings.contexts))


take = click.make_pass_decorator(Session)
