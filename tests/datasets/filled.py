"""Quick creation of sealed datasets."""

from __future__ import annotations

from collections.abc import Mapping

from datasets import services
from datasets.indexing import indexing
from datasets.models import Version
from rbac.models import User
from tests.datasets.conftest import Uploader

ROWS = {"train.csv": b"x,y\n1,2\n3,4\n", "test.csv": b"x,y\n5,6\n"}


def seal(actor: User, ns: str = "team", name: str = "mine", files: Mapping[str, bytes] = ROWS) -> Version:
    """Add a sealed version to the dataset, which is created if necessary."""
    uploader = Uploader(actor, ns, name)
    if not Version.objects.filter(dataset__namespace__name=ns, dataset__name=name).exists():
        services.create_dataset(actor=actor, namespace_name=ns, name=name)
    uploader.begin()
    for path, content in files.items():
        uploader.upload(path, content)
    indexing.index(uploader.seal().pk)
    return Version.objects.select_related("dataset__namespace").get(
        dataset__namespace__name=ns, dataset__name=name, number=uploader.number
    )
