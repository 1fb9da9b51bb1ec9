from __future__ import annotations

from django.apps import AppConfig


class JobsConfig(AppConfig):
    name = "jobs"
    default_auto_field = "django.db.models.BigAutoField"

    def ready(self) -> None:
        from datasets import signals
        from jobs.receivers import jobs_with, object_while_jobs_run
        from rbac.namespaces.signals import namespace_closing

        namespace_closing.connect(object_while_jobs_run, dispatch_uid="jobs")
        signals.asked.connect(jobs_with, dispatch_uid="jobs")
