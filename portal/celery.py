"""The Celery application. A Celery task is a hint: losing one costs latency, never correctness."""

from __future__ import annotations

import os

from celery import Celery
from django.conf import settings
from kombu.transport import TRANSPORT_ALIASES

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "portal.settings")

app = Celery("regatta")
# What addresses of Redis stand for.
TRANSPORT_ALIASES.update(dict.fromkeys(("redis", "rediss"), "portal.celery_redis:Transport"))
# Seconds. Without limits, a Redis that accepts connections and answers nothing holds sender and worker for ever. The
# worker reads from its queues without waiting, so the limits do not end its connection. The last three: the number of
# retries of a connection, and the pauses before them.
_REDIS_LIMITS = {
    "socket_connect_timeout": 1.0,
    "socket_timeout": 5.0,
    "health_check_interval": 10,
    "max_retries": 1,
    "interval_start": 0.0,
    "interval_step": 0.2,
}


def configure() -> None:
    """Configure the application with the broker of the settings; make the directories of the file-system broker."""
    options: dict[str, object] = {}
    if settings.BROKER_URL.startswith("filesystem://"):
        folders = {"data_folder_in": "messages", "data_folder_out": "messages", "control_folder": "control"}
        for folder in set(folders.values()):
            (settings.BROKER_DIR / folder).mkdir(parents=True, exist_ok=True)
        options = {option: str(settings.BROKER_DIR / folder) for option, folder in folders.items()}
        options["polling_interval"] = 0.05
        app.conf.broker_transport = "portal.celery_broker:Transport"
    else:
        options = dict(_REDIS_LIMITS)
    app.conf.update(
        broker_url=settings.BROKER_URL,
        broker_transport_options=options,
        task_ignore_result=True,
        task_serializer="json",
        accept_content=["json"],
        worker_hijack_root_logger=False,
        worker_send_task_events=False,
        broker_connection_retry_on_startup=True,
        # Without end: the worker waits for a broker that is away, however long.
        broker_connection_max_retries=None,
    )


configure()
app.autodiscover_tasks()
