"""Where the sockets hang."""

from __future__ import annotations

from django.urls import path

from jobs.consumers import StreamConsumer

websocket_urlpatterns = [path("ws/v1/stream", StreamConsumer.as_asgi())]
