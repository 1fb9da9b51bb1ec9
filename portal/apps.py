from django.apps import AppConfig


class PortalConfig(AppConfig):
    name = "portal"
    default_auto_field = "django.db.models.BigAutoField"

    def ready(self) -> None:
        # Every process that sends hints must send them to our broker, not to Celery's default one.
        from portal import (
            celery,  # noqa: F401
            private_files,  # noqa: F401  registers its check
        )
