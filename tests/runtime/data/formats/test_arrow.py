"""Arrow as pyarrow writes it, and its refused variants."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from runtime.data.errors import FormatError
from runtime.data.formats import arrow, registry
from runtime.messages import data as messages
from tests.messages import pattern
from tests.runtime.data.formats import makers

pytestmark = pytest.mark.formats


def written(path: Path, table_: Any, **options: Any) -> Path:
    import pyarrow

    with (
        pyarrow.OSFile(str(path), "wb") as file,
        pyarrow.ipc.new_stream(file, table_.schema, options=pyarrow.ipc.IpcWriteOptions(**options)) as writer,
    ):
        writer.write_table(table_, max_chunksize=10)
    return path


def numbers(count: int = 35) -> Any:
    import pyarrow

    return pyarrow.table({"a": range(count)})


def test_batches_are_joined_up_to_the_requested_size(tmp_path: Path) -> None:
    path = written(tmp_path / "a.arrow", numbers())
    assert [span.records for span in arrow.index(path, 1)] == [10, 10, 10, 5]
    assert [span.records for span in arrow.index(path, 1 << 20)] == [35]
    assert [row["a"] for row in makers.read(path, chunk_bytes=500)] == list(range(35))


def test_feather_without_compression_is_read(tmp_path: Path) -> None:
    import pyarrow.feather

    path = tmp_path / "a.feather"
    pyarrow.feather.write_feather(numbers(), path, compression="uncompressed", chunksize=10)
    assert [row["a"] for row in makers.read(path, chunk_bytes=1)] == list(range(35))


def test_compressed_batches_are_refused(tmp_path: Path) -> None:
    with pytest.raises(FormatError, match=pattern(messages.ARROW_COMPRESSION_UNSUPPORTED)):
        makers.chunks(written(tmp_path / "a.arrow", numbers(), compression="zstd"))


def test_dictionaries_are_refused(tmp_path: Path) -> None:
    import pyarrow

    path = written(tmp_path / "a.arrow", pyarrow.table({"kind": pyarrow.array(["x", "y"]).dictionary_encode()}))
    with pytest.raises(FormatError, match=pattern(messages.ARROW_DICTIONARY_UNSUPPORTED)):
        makers.chunks(path)


def test_types_that_stand_for_more_than_their_bytes_are_refused_with_the_column(tmp_path: Path) -> None:
    import pyarrow

    path = written(tmp_path / "a.arrow", pyarrow.table({"v": pyarrow.array(["x"], pyarrow.string_view())}))
    with pytest.raises(FormatError, match=pattern(messages.COLUMN_TYPE_UNSUPPORTED, name="'v'", type="string_view")):
        makers.chunks(path)


def test_rows_without_bytes_are_refused(tmp_path: Path) -> None:
    """A few bytes must not represent millions of rows."""
    import pyarrow

    path = written(tmp_path / "a.arrow", pyarrow.table({"n": pyarrow.nulls(10)}))
    data = path.read_bytes()
    assert [span.records for span in arrow.index(path, 1)] == [10]
    path.write_bytes(data.replace((10).to_bytes(8, "little"), (10**9).to_bytes(8, "little")))
    with pytest.raises(FormatError, match=pattern(messages.ARROW_BATCH_TOO_SHORT, count=10**9)):
        makers.chunks(path)


@pytest.mark.parametrize("cut", [1, 8, 9, 100])
def test_a_stream_without_its_end_is_refused(tmp_path: Path, cut: int) -> None:
    path = written(tmp_path / "a.arrow", numbers())
    path.write_bytes(path.read_bytes()[:-cut])
    with pytest.raises(FormatError, match=pattern(messages.ARROW_STREAM_TRUNCATED)):
        makers.chunks(path)


def test_bytes_after_the_end_are_refused(tmp_path: Path) -> None:
    path = written(tmp_path / "a.arrow", numbers())
    path.write_bytes(path.read_bytes() * 2)
    with pytest.raises(FormatError, match=pattern(messages.ARROW_TRAILING_BYTES)):
        makers.chunks(path)


def test_a_picture_that_lies_elsewhere_is_refused(tmp_path: Path) -> None:
    import pyarrow

    described = {"huggingface": json.dumps({"info": {"features": {"image": {"_type": "Image"}}}})}
    rows = pyarrow.table({"image": [{"bytes": None, "path": "/home/me/cat.png"}]}).replace_schema_metadata(described)
    path = written(tmp_path / "a.arrow", rows)
    with pytest.raises(
        FormatError, match=pattern(messages.COLUMN_FILE_NOT_EMBEDDED, name="'image'", path="'/home/me/cat.png'")
    ):
        makers.read(path)


@pytest.mark.parametrize("head", [b"", b"\xff\xff\xff\xff", b"\xff" * 64, b"\xff\xff\xff\xff\x08\0\0\0\x20\0\0\0"])
def test_other_bytes_are_not_taken_for_arrow(head: bytes) -> None:
    assert not registry.named("arrow").recognise(head)
