from __future__ import annotations

from django.apps import AppConfig


class JobsConfig(AppConfig):
    name = "jobs"
    default_auto_field = "django.db.models.BigAutoField"

    def ready(self) -> None:
        from jobs.closing import object_while_jobs_run
        from rbac.closing import namespace_closing

        namespace_closing.connect(object_while_jobs_run, dispatch_uid="jobs")
