from django.apps import AppConfig


class PortalConfig(AppConfig):
    name = "portal"
    default_auto_field = "django.db.models.BigAutoField"

    def ready(self) -> None:
        # Every process that sends Celery messages must send them to the configured broker, not to Celery's default one.
        from portal import (
            celery,  # noqa: F401
            private_files,  # noqa: F401  registers its system check
        )
