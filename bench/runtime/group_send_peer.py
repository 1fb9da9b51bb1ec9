"""Peer of S2: channels-redis as its documentation uses it. ``python -m bench.runtime.group_send_peer REDIS PORT``.

Each socket is a consumer in one group; each posted line is one ``group_send``. Settings are the defaults.
"""

from __future__ import annotations

import json
import sys
from typing import Any

import django
import uvicorn
from channels.generic.websocket import AsyncWebsocketConsumer
from channels.layers import get_channel_layer
from channels.routing import ProtocolTypeRouter
from django.conf import settings

GROUP = "job"


class Consumer(AsyncWebsocketConsumer):
    async def connect(self) -> None:
        await self.channel_layer.group_add(GROUP, self.channel_name)
        await self.accept()

    async def line(self, event: dict[str, Any]) -> None:
        await self.send(text_data=event["text"])


async def take(scope: dict[str, Any], receive: Any, send: Any) -> None:
    """Ingest endpoint: receives a JSON object with ``lines``."""
    body, more = b"", True
    while more:
        message = await receive()
        body, more = body + message.get("body", b""), message.get("more_body", False)
    layer = get_channel_layer()
    assert layer is not None
    for _time, _stream, text in json.loads(body)["lines"]:
        await layer.group_send(GROUP, {"type": "line", "text": text})
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"2")]})
    await send({"type": "http.response.body", "body": b"{}"})


def main(redis: str, port: int) -> None:
    layer = {"BACKEND": "channels_redis.core.RedisChannelLayer", "CONFIG": {"hosts": [redis]}}
    settings.configure(CHANNEL_LAYERS={"default": layer})
    django.setup()
    application = ProtocolTypeRouter({"http": take, "websocket": Consumer.as_asgi()})
    uvicorn.run(application, host="127.0.0.1", port=port, log_level="critical", lifespan="off")


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
