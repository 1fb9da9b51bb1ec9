"""IDX, as MNIST and its relatives are distributed: images, their labels beside them, plain or packed."""

from __future__ import annotations

import gzip
import struct
from pathlib import Path

import numpy as np
import pytest

from runtime.data import catalogue, local_files
from runtime.data.errors import FormatError
from runtime.data.format_selection import Unread, choose
from runtime.messages import data as messages
from tests.messages import either, pattern
from tests.runtime.data.formats.makers import chunks, of_mnist, read

IMAGES = np.arange(24).reshape(6, 2, 2).tolist()
LABELS = [5, 0, 4, 1, 9, 2]


def mnist(folder: Path, packed: bool = True) -> None:
    for part, count in (("train", 6), ("t10k", 2)):
        for kind, rows in (("images-idx3", IMAGES[:count]), ("labels-idx1", LABELS[:count])):
            path = folder / f"{part}-{kind}-ubyte"
            of_mnist(path, rows)
            if packed:
                path.with_name(path.name + ".gz").write_bytes(gzip.compress(path.read_bytes()))
                path.unlink()


@pytest.mark.parametrize("packed", [True, False])
@pytest.mark.parametrize("chunk_bytes", [1, 10, 1 << 20])
def test_images_come_with_their_labels(packed: bool, chunk_bytes: int, tmp_path: Path) -> None:
    mnist(tmp_path, packed)
    found = read(next(tmp_path.glob("train-images*")), None, chunk_bytes)
    assert [(image.tolist(), label) for image, label in found] == list(zip(IMAGES, LABELS, strict=True))
    assert {image.dtype.str for image, _label in found} == {"|u1"}


def test_a_folder_of_mnist_has_its_training_and_its_test(tmp_path: Path) -> None:
    mnist(tmp_path)
    info = local_files.find(str(tmp_path))
    assert info is not None
    assert (info.format, info.splits) == ("idx", ("train", "test"))
    records = {
        split: [label for chunk in catalogue.chunks(info, split) for _, label in catalogue.read_chunk(chunk)]
        for split in info.splits
    }
    assert records == {"train": LABELS, "test": LABELS[:2]}


def test_images_without_labels_and_labels_without_images_are_rows(tmp_path: Path) -> None:
    of_mnist(tmp_path / "train-images-idx3-ubyte", IMAGES)
    assert [image.tolist() for image in read(tmp_path / "train-images-idx3-ubyte")] == IMAGES
    (tmp_path / "other").mkdir()
    of_mnist(tmp_path / "other" / "train-labels-idx1-ubyte", LABELS)
    assert [int(label) for label in read(tmp_path / "other" / "train-labels-idx1-ubyte")] == LABELS


def test_other_numbers_of_images_than_of_labels_are_refused(tmp_path: Path) -> None:
    of_mnist(tmp_path / "train-images-idx3-ubyte", IMAGES)
    of_mnist(tmp_path / "train-labels-idx1-ubyte", LABELS[:3])
    with pytest.raises(FormatError, match=pattern(messages.IMAGE_LABEL_COUNT_MISMATCH)):
        chunks(tmp_path / "train-images-idx3-ubyte")


@pytest.mark.parametrize("code", [(0x09, ">i1"), (0x0B, ">i2"), (0x0C, ">i4"), (0x0D, ">f4"), (0x0E, ">f8")])
def test_numbers_come_in_the_order_of_this_machine(code: tuple[int, str], tmp_path: Path) -> None:
    array = np.array([[1, -2], [3, 4]], code[1])
    (tmp_path / "data.idx").write_bytes(struct.pack(">HBBII", 0, code[0], 2, 2, 2) + array.tobytes())
    first, second = read(tmp_path / "data.idx")
    assert (first.tolist(), second.tolist(), first.dtype.isnative) == ([1, -2], [3, 4], True)


def test_a_file_that_is_cut_short_is_refused(tmp_path: Path) -> None:
    of_mnist(tmp_path / "data.idx", IMAGES)
    content = (tmp_path / "data.idx").read_bytes()
    for length in (3, 9, len(content) - 1):
        (tmp_path / "data.idx").write_bytes(content[:length])
        with pytest.raises(FormatError, match=either(messages.IDX_INVALID, messages.ARRAY_TRUNCATED)):
            chunks(tmp_path / "data.idx", "idx")


@pytest.mark.parametrize(
    ("images", "labels"),
    [
        ("train-images-idx3-ubyte", "train-labels-idx1-ubyte"),
        ("train-images.idx3-ubyte", "train-labels.idx1-ubyte"),
        ("a/emnist-letters-test-images-idx3-ubyte.gz", "a/emnist-letters-test-labels-idx1-ubyte"),
        ("t10k-images-idx3-ubyte", "t10k-labels-idx1-ubyte.gz"),
    ],
)
def test_labels_are_read_with_their_images_and_not_on_their_own(images: str, labels: str) -> None:
    chosen = choose({images: "idx", labels: "idx"}, "")
    assert (chosen[images].format, chosen[labels]) == ("idx", ("", Unread.LABELS))
    assert choose({labels: "idx"}, "")[labels].format == "idx"
