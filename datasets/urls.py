from __future__ import annotations

from django.urls import path

from datasets import views

_DATASET = "datasets/<str:ns>/<str:name>"

urlpatterns = [
    path("n/<str:ns>/datasets", views.dataset_list, name="datasets"),
    path("n/<str:ns>/datasets/new", views.new_dataset, name="new-dataset"),
    path(_DATASET, views.dataset_page, name="dataset"),
    path(f"{_DATASET}/upload", views.upload, name="dataset-upload"),
    path(f"{_DATASET}/change", views.change, name="change-dataset"),
    path(f"{_DATASET}/readers", views.set_readers, name="dataset-readers"),
    path(f"{_DATASET}/delete", views.delete, name="delete-dataset"),
    path(f"{_DATASET}/restore", views.restore, name="restore-dataset"),
    path(f"{_DATASET}/versions/<int:number>/delete", views.delete_version, name="delete-dataset-version"),
    path(f"{_DATASET}/versions/<int:number>/files/<int:file_id>/take-out", views.take_out, name="take-out-of-dataset"),
]
