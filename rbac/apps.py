from django.apps import AppConfig


class RbacConfig(AppConfig):
    name = "rbac"
    default_auto_field = "django.db.models.BigAutoField"
