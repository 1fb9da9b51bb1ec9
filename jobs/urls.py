from __future__ import annotations

from django.urls import path
from django.views.decorators.cache import cache_control
from django.views.i18n import JavaScriptCatalog

from jobs.web import cluster as cluster_views
from jobs.web import jobs as job_views
from jobs.web import notebooks as notebook_views
from jobs.web.notebook_opening import open_notebook

urlpatterns = [
    path("", job_views.home, name="home"),
    path("n/<str:ns>/jobs", job_views.job_list, name="jobs"),
    path("n/<str:ns>/jobs/new", job_views.new_job, name="new-job"),
    path("n/<str:ns>/jobs/<uuid:job_id>", job_views.job_page, name="job"),
    path("n/<str:ns>/jobs/<uuid:job_id>/delete", job_views.delete_job, name="delete-job"),
    path("n/<str:ns>/jobs/<uuid:job_id>/notebook", notebook_views.open_job, name="open-job-in-notebook"),
    path("n/<str:ns>/notebooks", notebook_views.notebook_list, name="notebooks"),
    path("n/<str:ns>/notebooks/new", notebook_views.create, name="create-notebook"),
    path("n/<str:ns>/notebooks/of-dataset", notebook_views.open_dataset, name="open-dataset-in-notebook"),
    path("n/<str:ns>/notebooks/<uuid:notebook_id>/start", notebook_views.start, name="start-notebook"),
    path("n/<str:ns>/notebooks/<uuid:notebook_id>/stop", notebook_views.stop, name="stop-notebook"),
    path("n/<str:ns>/notebooks/<uuid:notebook_id>/delete", notebook_views.delete, name="delete-notebook"),
    path("n/<str:ns>/notebooks/<uuid:notebook_id>/<path:path>", open_notebook, name="open-notebook"),
    path("admin/cluster", cluster_views.page, name="admin-cluster"),
    path("admin/cluster/now", cluster_views.now, name="admin-cluster-now"),
    path("admin/cluster/mode", cluster_views.set_mode, name="admin-cluster-mode"),
    path("admin/cluster/what-if", cluster_views.what_if, name="admin-what-if"),
    # The texts of the scripts in the reader's language. The address names the language too, for caches.
    path(
        "texts.js",
        cache_control(private=True, max_age=600)(JavaScriptCatalog.as_view(packages=["portal"])),
        name="catalogue",
    ),
]
