from __future__ import annotations

from django.apps import AppConfig


class JobsConfig(AppConfig):
    name = "jobs"
    default_auto_field = "django.db.models.BigAutoField"

    def ready(self) -> None:
        from datasets import uses
        from jobs.closing import object_while_jobs_run
        from jobs.uses import jobs_with
        from rbac.closing import namespace_closing

        namespace_closing.connect(object_while_jobs_run, dispatch_uid="jobs")
        uses.asked.connect(jobs_with, dispatch_uid="jobs")
