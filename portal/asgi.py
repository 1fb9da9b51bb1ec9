"""The ASGI application: pages, API and ingest over HTTP, streams over websockets."""

from __future__ import annotations

import os

import django

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "portal.settings")
# Django must be set up before anything that imports models.
django.setup(set_prefix=False)

from channels.routing import ProtocolTypeRouter, URLRouter  # noqa: E402
from channels.sessions import CookieMiddleware  # noqa: E402
from django.conf import settings  # noqa: E402

from jobs.live.notebooks.application import NotebookProxy  # noqa: E402
from jobs.live.routing import websocket_urlpatterns  # noqa: E402
from portal.http.access import Access  # noqa: E402
from portal.http.agent_port import separated  # noqa: E402
from portal.http.handler import Handler  # noqa: E402


def make_application() -> Access:
    """Return a new application. Its connections to notebooks belong to the event loop that runs it."""
    portal = ProtocolTypeRouter(
        {
            "http": Handler(),
            # Sockets look up their account themselves (jobs.live.authentication): a middleware that did so before
            # them would fail the handshake without a database, and browsers hide the reason of that.
            "websocket": CookieMiddleware(URLRouter(websocket_urlpatterns)),
        }
    )
    return Access(separated(NotebookProxy(portal), settings.AGENT_PORT))


application = make_application()
