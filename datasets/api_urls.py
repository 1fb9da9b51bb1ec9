from __future__ import annotations

from django.urls import path

from datasets import api

urlpatterns = [
    path("datasets", api.DatasetsView.as_view(), name="api-datasets"),
    path("datasets/public/<str:name>", api.PublicDatasetView.as_view(), name="api-public-dataset"),
]
