"""The ASGI application: pages, API and ingest over HTTP, streams over websockets."""

from __future__ import annotations

import os

import django

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "portal.settings")
# Django must be set up before anything that imports models.
django.setup(set_prefix=False)

from channels.auth import AuthMiddlewareStack  # noqa: E402
from channels.routing import ProtocolTypeRouter, URLRouter  # noqa: E402

from jobs.live.routing import websocket_urlpatterns  # noqa: E402
from portal.http.access import Access  # noqa: E402
from portal.http.request_streaming import StreamingHandler  # noqa: E402

application = Access(
    ProtocolTypeRouter(
        {
            "http": StreamingHandler(),
            "websocket": AuthMiddlewareStack(URLRouter(websocket_urlpatterns)),
        }
    )
)
