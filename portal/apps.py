import logging
from importlib import import_module

from django.apps import AppConfig
from django.conf import settings

# The catalogues of messages, one per package.
CATALOGUES = (
    "datasets.messages",
    "jobs.messages.cluster",
    "jobs.messages.control",
    "jobs.messages.elastic",
    "jobs.messages.holds",
    "jobs.messages.jobs",
    "jobs.messages.notebooks",
    "jobs.messages.pauses",
    "jobs.messages.specification",
    "jobs.messages.stalls",
    "jobs.messages.terminals",
    "portal.common.messages.requests",
    "portal.system.messages",
    "quota.messages",
    "rbac.messages",
    "runtime.messages.composition",
    "runtime.messages.data",
    "runtime.messages.isolation",
    "runtime.messages.terminal",
    "runtime.messages.training",
)


class PortalConfig(AppConfig):
    name = "portal"
    default_auto_field = "django.db.models.BigAutoField"

    def ready(self) -> None:
        # Messages are looked up by their code, so every catalogue must have been imported.
        for catalogue in CATALOGUES:
            import_module(catalogue)
        if settings.LOG_FORMAT == "json":
            logging.captureWarnings(True)  # as lines of JSON too
        # Every process that sends Celery messages must send them to the configured broker, not to Celery's default one.
        from portal import (
            celery,  # noqa: F401
            private_files,  # noqa: F401  registers its system check
        )
