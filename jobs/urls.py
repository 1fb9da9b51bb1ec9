from __future__ import annotations

from django.urls import path
from django.views.decorators.cache import cache_control
from django.views.i18n import JavaScriptCatalog

from jobs import views

urlpatterns = [
    path("", views.home, name="home"),
    path("n/<str:ns>/jobs", views.job_list, name="jobs"),
    path("n/<str:ns>/jobs/new", views.new_job, name="new-job"),
    path("n/<str:ns>/jobs/<uuid:job_id>", views.job_page, name="job"),
    path("n/<str:ns>/jobs/<uuid:job_id>/delete", views.delete_job, name="delete-job"),
    # The texts of the scripts in the reader's language, which the address names too, for caches.
    path(
        "texts.js",
        cache_control(private=True, max_age=600)(JavaScriptCatalog.as_view(packages=["portal"])),
        name="catalogue",
    ),
]
