"""Routes of the websockets."""

from __future__ import annotations

from django.urls import path, re_path

from jobs.live.connect_consumer import ConnectConsumer
from jobs.live.consumers import NowhereConsumer, StreamConsumer
from jobs.live.exec_consumer import ExecConsumer

websocket_urlpatterns = [
    path("ws/v1/stream", StreamConsumer.as_asgi()),
    path("ws/v1/exec", ExecConsumer.as_asgi()),
    path("ws/v1/connect", ConnectConsumer.as_asgi()),
    re_path("", NowhereConsumer.as_asgi()),
]
