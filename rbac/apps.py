from django.apps import AppConfig


class RbacConfig(AppConfig):
    name = "rbac"
    default_auto_field = "django.db.models.BigAutoField"

    def ready(self) -> None:
        from rbac import schema  # noqa: F401  tells the API document how callers authenticate
