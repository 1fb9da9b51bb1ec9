from __future__ import annotations

from django.urls import path

from datasets.api import datasets as dataset_api
from datasets.api import uploads as upload_api

_DATASET = "datasets/<str:ns>/<str:name>"
_VERSION = f"{_DATASET}/versions/<int:number>"
_FILE = f"{_VERSION}/files/<int:file_id>"

urlpatterns = [
    path("datasets", dataset_api.DatasetsView.as_view(), name="api-datasets"),
    path("datasets/public/<str:name>", dataset_api.ShippedDatasetView.as_view(), name="api-shipped-dataset"),
    path("namespaces/<str:ns>/datasets", dataset_api.NamespaceDatasetsView.as_view(), name="api-namespace-datasets"),
    path(_DATASET, dataset_api.DatasetView.as_view(), name="api-dataset"),
    path(f"{_DATASET}/restore", dataset_api.RestoreView.as_view(), name="api-dataset-restore"),
    path(f"{_DATASET}/shares", dataset_api.SharesView.as_view(), name="api-dataset-shares"),
    path(f"{_DATASET}/uses", dataset_api.UsesView.as_view(), name="api-dataset-uses"),
    path(f"{_DATASET}/versions", dataset_api.VersionsView.as_view(), name="api-dataset-versions"),
    path(_VERSION, dataset_api.VersionView.as_view(), name="api-dataset-version"),
    path(f"{_VERSION}/preview", dataset_api.PreviewView.as_view(), name="api-dataset-preview"),
    path(f"{_VERSION}/seal", dataset_api.SealView.as_view(), name="api-dataset-seal"),
    path(f"{_VERSION}/files", upload_api.FilesView.as_view(), name="api-dataset-files"),
    path(_FILE, upload_api.FileView.as_view(), name="api-dataset-file"),
    path(f"{_FILE}/parts/<int:part>", upload_api.PartView.as_view(), name="api-dataset-part"),
    path(f"{_FILE}/complete", upload_api.CompleteView.as_view(), name="api-dataset-complete"),
    path(f"{_VERSION}/content/<path:path>", dataset_api.ContentView.as_view(), name="api-dataset-content"),
]
