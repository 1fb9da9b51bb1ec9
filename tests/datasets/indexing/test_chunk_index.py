"""Chunks of files of every format in the manifest of a version."""

from __future__ import annotations

import bz2
import gzip
import io
import json
import re
import tarfile
import tracemalloc
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from datasets import manifest, services
from datasets import messages as datasets_messages
from datasets.indexing import chunk_index, indexing, previews
from datasets.manifest import Entry
from datasets.models import Dataset, File, Version
from datasets.states import VersionState
from datasets.storage import default_storage
from portal.common.errors import ValidationFailed
from runtime.data import version_layout
from runtime.data.errors import FormatError
from runtime.data.formats import arrays, gzipped, registry
from runtime.data.span import Span
from runtime.messages import Template
from runtime.messages import data as messages
from tests.datasets.conftest import Uploader
from tests.messages import mentions, pattern
from tests.runtime.data.formats import makers

pytestmark = pytest.mark.django_db

EVERY_FORMAT = [
    pytest.param(name, marks=pytest.mark.formats if name in makers.OF_PYARROW else ()) for name in sorted(makers.FILES)
]


@pytest.fixture(autouse=True)
def _files_in_one_part(small_parts: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """Tar files have at least ten thousand bytes."""
    monkeypatch.setattr(manifest, "part_size_for", lambda size: 1 << 20)


def sealed(uploader: Uploader) -> Version:
    indexing.index(uploader.seal().pk)
    return Version.objects.get(dataset__name=uploader.name, number=uploader.number)


def entries(version: Version) -> dict[str, Entry]:
    with default_storage().open(version.manifest) as stream:
        return {entry.path: entry for entry in manifest.load(stream.read()).files}


def make(name: str, folder: Path) -> list[Path]:
    makers.make(name, folder)
    return sorted(path for path in folder.rglob("*") if path.is_file())


@pytest.mark.parametrize("name", EVERY_FORMAT)
def test_the_chunks_of_every_format_are_those_that_trainers_read(uploader: Uploader, tmp_path: Path, name: str) -> None:
    if name in {"features", "example", "image"}:  # cannot be detected from a single file
        Dataset.objects.update(format=name)
    paths = make(name, tmp_path)
    for path in paths:
        uploader.upload(f"train/{path.name}", path.read_bytes())
    version = sealed(uploader)
    assert (version.state, version.why, version.format) == ("sealed", "", name)
    _, rows, _ = makers.FILES[name]
    found = {path.name: entries(version)[f"train/{path.name}"] for path in paths}
    read = [
        record
        for path in paths
        for chunk in found[path.name].chunks
        for record in registry.named(found[path.name].format).read(
            path, Span(chunk.offset, chunk.length, chunk.records, chunk.digest)
        )
    ]
    assert len(read) == len(rows) == version.records
    assert makers.plain(read[0]) == makers.plain(rows[0]) or name == "features"


def test_chunks_without_a_checksum_are_given_a_digest(uploader: Uploader, tmp_path: Path) -> None:
    (path,) = make("npy", tmp_path)
    uploader.upload("a.npy", path.read_bytes())
    (chunk,) = entries(sealed(uploader))["a.npy"].chunks
    spoiled = bytearray(path.read_bytes())
    spoiled[-1] ^= 1
    path.write_bytes(spoiled)
    with pytest.raises(FormatError, match=pattern(messages.FILE_CHANGED_SINCE_INDEXED)):
        list(registry.named("npy").read(path, Span(*(chunk.offset, chunk.length, chunk.records), chunk.digest)))


def test_a_file_of_no_known_format_is_kept_and_reported(uploader: Uploader) -> None:
    uploader.upload("a.csv", b"x,y\n1,2\n")
    uploader.upload("notes.docx", b"what we did")
    version = sealed(uploader)
    assert (version.state, version.files_count, version.records) == (VersionState.SEALED, 2, 1)
    notes = File.objects.get(path="notes.docx")
    assert (notes.format, notes.unread, notes.records) == ("", "unknown", None)
    assert entries(version)["notes.docx"] == Entry("notes.docx", 11, notes.sha256)


@pytest.mark.parametrize(
    ("name", "content", "why"),
    [
        ("a.csv", b'x,y\n1,2\n3,"4\n', f"offset 0{pattern(messages.CSV_QUOTE_UNCLOSED)}"),
        ("a.npy", b"\x93NUMPY\x01\x00", pattern(messages.NPY_INVALID)),
        ("a.tar", b"\0" * 100 + b"x" * 500, f"offset 0{pattern(messages.TAR_MEMBER_MISSING)}"),
        ("a.list", b"no tab\n", "chunk at 0" + pattern(messages.LIST_LINE_INVALID, line="'no tab'")),
        ("a.list", b"b.png\t1\n", pattern(datasets_messages.LISTED_FILE_NOT_IN_VERSION, offset=0, name="'b.png'")),
    ],
)
def test_a_broken_file_fails_the_version_with_its_name_and_the_place(
    uploader: Uploader, name: str, content: bytes, why: str
) -> None:
    uploader.upload(f"train/{name}", content)
    version = sealed(uploader)
    assert version.state == VersionState.FAILED
    assert f"'train/{name}'" in version.why and re.search(why, version.why)
    assert str(default_storage().shelf()) not in version.why


def test_a_file_that_needs_a_missing_package_names_the_operator(
    uploader: Uploader, monkeypatch: pytest.MonkeyPatch
) -> None:
    uploader.upload("a.parquet", b"PAR1")
    monkeypatch.setattr(chunk_index, "find", lambda name: None)
    assert mentions(sealed(uploader).why, datasets_messages.FORMAT_PACKAGE_MISSING)


def test_a_file_of_countless_chunks_is_refused(uploader: Uploader, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chunk_index, "CHUNKS_LIMIT", 1)
    uploader.upload("a.csv", b"1,2\n")
    uploader.upload("b.csv", b"1,2\n")
    version = sealed(uploader)
    assert version.state == VersionState.FAILED
    assert mentions(version.why, datasets_messages.VERSION_CHUNK_LIMIT, path="'b.csv'", offset=0, count=1)


def test_indexing_leaves_no_scratch_files(uploader: Uploader) -> None:
    uploader.upload("a.csv", b"1,2\n")
    sealed(uploader)
    assert list(default_storage().shelf().iterdir()) == []


def test_a_format_that_is_set_applies_to_the_next_version(uploader: Uploader) -> None:
    uploader.upload("rows.dat", b"1,2\n3,4\n")
    assert sealed(uploader).format == "files"
    Dataset.objects.update(format="csv")
    uploader.begin()
    uploader.upload("rows.dat", b"1,2\n3,4\n")
    version = sealed(uploader)
    assert (version.format, version.records) == ("csv", 2)


def test_an_unknown_format_is_refused(uploader: Uploader) -> None:
    with pytest.raises(ValidationFailed) as refused:
        services.create_dataset(actor=uploader.actor, namespace_name="team", name="other", format="cvs")
    assert mentions(refused.value.errors["format"][0], datasets_messages.CHOICE_INVALID_OPTIONAL)


# --- Files that would exhaust memory -------------------------------------------------------------------------------
def zip_bomb() -> bytes:
    """Two arrays that are compressed to a thousandth."""
    file = io.BytesIO()
    np.savez_compressed(file, x=np.zeros(40_000_000, "u1"), y=np.zeros(40_000_000, "u1"))
    return file.getvalue()


def tar_bomb() -> bytes:
    """A member whose announced size exceeds the file."""
    info = tarfile.TarInfo("a.bin")
    info.size = 2**40
    return info.tobuf() + bytes(512)


@pytest.mark.parametrize(
    ("name", "content", "template"),
    [("a.npz", zip_bomb, messages.COMPRESSED_ARRAYS_TOO_LARGE), ("a.tar", tar_bomb, messages.TAR_MEMBER_TRUNCATED)],
)
def test_a_bomb_is_refused_within_bounds(
    uploader: Uploader, monkeypatch: pytest.MonkeyPatch, name: str, content: Callable[[], bytes], template: Template
) -> None:
    monkeypatch.setattr(arrays, "MAX_CHUNK_BYTES", 1 << 20)
    uploader.upload(name, content())
    tracemalloc.start()
    try:
        version = sealed(uploader)
        assert tracemalloc.get_traced_memory()[1] < 20 << 20
    finally:
        tracemalloc.stop()
    assert version.state == VersionState.FAILED and mentions(version.why, template)


def test_an_archive_is_kept_and_never_unpacked(uploader: Uploader) -> None:
    uploader.upload("a.csv.bz2", bz2.compress(b"a,b\n1,2\n"))
    assert (sealed(uploader).state, File.objects.get().unread) == ("sealed", "packed")


def test_a_bomb_of_gzip_is_refused_with_its_name(uploader: Uploader, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gzipped, "FREE_BYTES", 1 << 16)
    uploader.upload("a.csv.gz", gzip.compress(b"1,2\n" * (1 << 18)))
    version = sealed(uploader)
    assert version.state == VersionState.FAILED
    assert "'a.csv.gz'" in version.why and mentions(version.why, messages.GZIP_RATIO_TOO_HIGH, times=200)


def test_compressed_files_have_chunks_of_the_uncompressed_data(uploader: Uploader, tmp_path: Path) -> None:
    content = b"a,b\n" + b"1,2\n" * 1000
    packed = gzip.compress(content)
    uploader.upload("train/a.csv.gz", packed)
    version = sealed(uploader)
    entry = entries(version)["train/a.csv.gz"]
    assert (version.state, version.format, entry.records, entry.unpacked) == ("sealed", "csv", 1000, len(content))
    assert entry.chunks[-1].offset + entry.chunks[-1].length == len(content) > entry.size
    (tmp_path / "a.csv.gz").write_bytes(packed)
    read = [
        row
        for chunk in entry.chunks
        for row in registry.named("csv").read(
            tmp_path / "a.csv.gz", Span(chunk.offset, chunk.length, chunk.records, chunk.digest)
        )
    ]
    assert read == [{"a": "1", "b": "2"}] * 1000


def test_mnist_is_images_with_labels_and_its_own_test(uploader: Uploader, tmp_path: Path) -> None:
    for part, count in (("train", 3), ("t10k", 2)):
        for kind, rows in (("images-idx3", [[[1]]] * count), ("labels-idx1", [7] * count)):
            makers.of_mnist(tmp_path / "file", rows)
            uploader.upload(f"{part}-{kind}-ubyte.gz", gzip.compress((tmp_path / "file").read_bytes()))
    version = sealed(uploader)
    assert (version.state, version.why, version.format, version.records) == ("sealed", "", "idx", 5)
    unread = dict(File.objects.values_list("path", "unread"))
    assert [path for path, why in sorted(unread.items()) if why == "labels"] == [
        "t10k-labels-idx1-ubyte.gz",
        "train-labels-idx1-ubyte.gz",
    ]


def test_arrays_that_name_their_split_have_chunks_of_it(uploader: Uploader, tmp_path: Path) -> None:
    arrays = {"x_train": np.ones((3, 2)), "y_train": np.ones(3), "x_test": np.ones((2, 2)), "y_test": np.ones(2)}
    np.savez_compressed(tmp_path / "mnist.npz", **arrays)
    uploader.upload("mnist.npz", (tmp_path / "mnist.npz").read_bytes())
    version = sealed(uploader)
    found = [(chunk.split, chunk.records) for chunk in entries(version)["mnist.npz"].chunks]
    assert found == [("train", 3), ("test", 2)]
    with default_storage().open(version.manifest) as stream:
        described = version_layout.describe(json.load(stream), version.format)
    assert described["splits"] == {"train": 3, "test": 2}


def test_pictures_in_a_folder_per_class_are_records(uploader: Uploader) -> None:
    for name in ("train/cat/1.jpg", "train/dog/2.jpg", "test/cat/3.jpg"):
        uploader.upload(name, b"\xff\xd8\xff" + name.encode())
    version = sealed(uploader)
    assert (version.state, version.format, version.records) == ("sealed", "image", 3)


def test_pictures_beside_other_records_are_kept_and_not_read(uploader: Uploader) -> None:
    uploader.upload("a.csv", b"a,b\n1,2\n")
    uploader.upload("cat/1.jpg", b"\xff\xd8\xff1")
    uploader.upload("dog/2.jpg", b"\xff\xd8\xff2")
    assert (sealed(uploader).format, File.objects.get(path="cat/1.jpg").unread) == ("csv", "picture")


@pytest.mark.parametrize("kind", [tarfile.SYMTYPE, tarfile.LNKTYPE])
def test_links_in_a_tar_file_are_refused(uploader: Uploader, kind: bytes) -> None:
    info = tarfile.TarInfo("a.bin")
    info.type, info.linkname = kind, "/etc/passwd"
    uploader.upload("a.tar", info.tobuf() + bytes(1024))
    version = sealed(uploader)
    assert version.state == VersionState.FAILED and "'a.bin' is a link" in version.why


# --- Folders that HuggingFace has saved ------------------------------------------------------------------------------
SAVED = Path(makers.__file__).parent / "samples"


def upload_saved(uploader: Uploader, name: str, but: str = "") -> Version:
    for path in sorted(path for path in (SAVED / name).rglob("*") if path.is_file() and path.name != but):
        uploader.upload(path.relative_to(SAVED / name).as_posix(), path.read_bytes())
    return sealed(uploader)


@pytest.mark.formats
def test_saved_splits_have_records_and_the_list_names_those_without(uploader: Uploader) -> None:
    version = upload_saved(uploader, "saved_dict")
    assert (version.state, version.why, version.format, version.records) == ("sealed", "", "arrow", 4)
    unread = dict(File.objects.filter(path__endswith=".arrow").values_list("path", "unread"))
    assert [path for path, why in unread.items() if why == "split"] == ["unsupervised/data-00000-of-00001.arrow"]
    preview = previews.of(version)
    assert (preview["format"], [column["name"] for column in preview["columns"]]) == ("arrow", ["text", "label"])
    assert preview["records"] == [["one", 0]]


@pytest.mark.formats
def test_a_saved_dataset_shows_its_pictures(uploader: Uploader) -> None:
    preview = previews.of(upload_saved(uploader, "saved"))
    assert len(preview["records"]) == len(preview["pictures"]) == 2


@pytest.mark.formats
def test_a_saved_dataset_without_one_of_its_shards_fails_the_version_with_its_name(uploader: Uploader) -> None:
    version = upload_saved(uploader, "saved", but="data-00001-of-00002.arrow")
    assert version.state == VersionState.FAILED
    assert re.search(pattern(messages.LISTED_FILE_MISSING, name="'data-00001-of-00002.arrow'"), version.why)
