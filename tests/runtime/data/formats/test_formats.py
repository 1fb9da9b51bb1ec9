"""Rules for every format: detection, chunks, records, and the effect of damaged files."""

from __future__ import annotations

import bz2
import gzip
import sys
import tracemalloc
from itertools import pairwise

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from runtime.data import span as spans
from runtime.data.errors import FormatError
from runtime.data.formats import registry
from runtime.data.optional_imports import find
from runtime.data.span import CHUNK_BYTES
from runtime.errors import UsageError
from runtime.messages import data as messages
from tests.messages import either, pattern
from tests.properties import examples
from tests.runtime.data.formats.makers import FILES, OF_PYARROW, chunks, make, plain, read

NAMES = [pytest.param(name, marks=pytest.mark.formats) if name in OF_PYARROW else name for name in sorted(FILES)]
every_format = pytest.mark.parametrize("name", NAMES)


def test_every_format_of_the_table_is_tried_here():
    assert FILES.keys() == registry.FORMATS.keys()


@every_format
@pytest.mark.parametrize("chunk_bytes", [1, 100, CHUNK_BYTES])
def test_all_records_are_read_in_order_however_large_chunks_are(name, chunk_bytes, tmp_path):
    path, rows = make(name, tmp_path)
    assert [plain(record) for record in read(path, name, chunk_bytes)] == [plain(row) for row in rows]


@every_format
def test_a_file_is_recognised(name, tmp_path):
    path, _rows = make(name, tmp_path)
    if name not in {"features", "example"}:  # only a description distinguishes these from other RecordIO, or TFRecord
        assert registry.detect(path).name == name


@every_format
def test_chunks_lie_in_the_file_side_by_side(name, tmp_path):
    path, rows = make(name, tmp_path)
    found = chunks(path, name, 1)
    assert len(found) > 1 or name == "image"
    assert all(one.offset + one.length <= other.offset for one, other in pairwise(found))
    assert found[-1].offset + found[-1].length <= path.stat().st_size
    assert sum(span.records for span in found) == len(rows)


@every_format
def test_chunks_are_the_same_each_time(name, tmp_path):
    path, _rows = make(name, tmp_path)
    assert chunks(path, name, 100) == chunks(path, name, 100)


@pytest.mark.parametrize("name", ["recordio", "jsonl", "csv", "text", "list"])
def test_a_chunk_that_has_changed_since_it_was_listed_is_refused(name, tmp_path):
    path, _rows = make(name, tmp_path)
    (span,) = chunks(path, name) if name != "recordio" else chunks(path, name)[:1]
    path.write_bytes(path.read_bytes()[::-1])
    with pytest.raises(FormatError):
        list(registry.named(name).read(path, span))


@every_format
def test_a_file_that_shrank_since_it_was_listed_is_reported(name, tmp_path):
    path, _rows = make(name, tmp_path)
    span = chunks(path, name)[-1]
    path.write_bytes(path.read_bytes()[: span.offset + span.length // 2])
    with pytest.raises(FormatError):
        list(registry.named(name).read(path, span))


@every_format
def test_a_missing_file_is_an_error_of_the_system(name, tmp_path):
    with pytest.raises(FileNotFoundError):
        chunks(tmp_path / "missing", name)


@pytest.mark.parametrize("name", ["recordio", "tfrecord", "jsonl", "csv", "text", "list"])
def test_an_empty_file_has_no_chunks(name, tmp_path):
    path = tmp_path / "empty"
    path.touch()
    assert chunks(path, name) == []


# --- Which format ----------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("a.csv", "csv"),
        ("A.TSV", "csv"),
        ("b.ndjson", "jsonl"),
        ("c.txt", "text"),
        ("d.tfrecord-00001-of-00009", "tfrecord"),
    ],
)
def test_ambiguous_content_is_decided_by_the_name(name, expected, tmp_path):
    (tmp_path / name).touch()
    assert registry.detect(tmp_path / name).name == expected


def test_the_content_counts_for_more_than_the_name(tmp_path):
    path, _rows = make("recordio", tmp_path)
    assert registry.detect(path.rename(tmp_path / "wrong.csv")).name == "recordio"


def test_an_error_for_an_unknown_format_lists_the_known_suffixes(tmp_path):
    (tmp_path / "notes.doc").write_bytes(b"?")
    with pytest.raises(FormatError, match=pattern(messages.FILE_FORMAT_UNSUPPORTED)):
        registry.detect(tmp_path / "notes.doc")


def test_an_error_for_a_doubly_packed_file_advises_to_unpack(tmp_path):
    (tmp_path / "data.csv.bz2").write_bytes(bz2.compress(b"a,b\n"))
    (tmp_path / "data.doc.gz").write_bytes(gzip.compress(b"a,b\n"))
    for name, how in (("data.csv.bz2", "bzip2"), ("data.doc.gz", "gzip")):
        with pytest.raises(FormatError, match=pattern(messages.FILE_PACKED, packing=how)):
            registry.detect(tmp_path / name)


def test_an_unknown_format_error_names_the_nearest():
    with pytest.raises(UsageError, match=pattern(messages.DID_YOU_MEAN, name="tfrecord or recordio")):
        registry.named("tfrecrd")


# --- Damage ----------------------------------------------------------------------------------------------------------
# The files here have a few hundred bytes. Whatever they announce, no more than this may be allocated for them.
BOUND_BYTES = 16 << 20
TRIED = [each for each in sorted(FILES) if each not in OF_PYARROW or find("pyarrow")]


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    folder = tmp_path_factory.mktemp("files")
    made = {}
    for name in TRIED:
        (folder / name).mkdir()
        made[name] = make(name, folder / name)[0].read_bytes()
    return folder, made


@pytest.mark.invariant("A damaged data file is read or refused with a message, within bounded memory.")
@settings(max_examples=examples(120), suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(data=st.data())
def test_any_content_is_read_or_refused_with_a_message_within_bounds(data, files):
    """Changed, cut, doubled or torn apart: the only errors are the format's own."""
    folder, made = files
    name = data.draw(st.sampled_from(TRIED))
    content = bytearray(made[name])
    for _change in range(data.draw(st.integers(0, 4))):
        at = data.draw(st.integers(0, len(content) - 1))
        piece = data.draw(st.one_of(st.binary(min_size=1, max_size=8), st.just(b"\xff" * 8), st.just(b"7" * 11)))
        content[at : at + len(piece)] = piece
    begin, end = sorted((data.draw(st.integers(0, len(content))), data.draw(st.integers(0, len(content)))))
    content = content[begin:end] if data.draw(st.booleans()) else content + content[begin:end]
    path = folder / name / "tried"
    path.write_bytes(content)
    tracemalloc.start()
    try:
        read(path, name, data.draw(st.sampled_from([1, 100, CHUNK_BYTES])))
    except FormatError as error:
        assert str(error).endswith(".")
    finally:
        taken = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
    assert taken < BOUND_BYTES


@settings(max_examples=examples(60), suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(noise=st.binary(max_size=600), name=st.sampled_from(TRIED))
def test_noise_is_read_or_refused_with_a_message(noise, name, files):
    path = files[0] / name / "noise"
    path.write_bytes(noise)
    try:
        read(path, name, 100)
    except FormatError:
        return


@pytest.mark.parametrize("name", ["webdataset", "tfrecord", "jsonl", "csv", "text", "npy", "npz", "list"])
def test_an_indivisible_piece_that_is_too_large_is_refused(name, tmp_path, monkeypatch):
    """With a limit of a few bytes in place of half a gigabyte."""
    path, _rows = make(name, tmp_path)
    module = registry.named(name).index.__module__
    for place in {module, "runtime.data.formats.base", "runtime.data.formats.lines", "runtime.data.formats.images"}:
        if hasattr(sys.modules[place], "MAX_CHUNK_BYTES"):
            monkeypatch.setattr(f"{place}.MAX_CHUNK_BYTES", 2)
    with pytest.raises(
        FormatError,
        match=either(
            messages.READ_TOO_LARGE,
            messages.TAR_MEMBER_HEADER_TOO_LARGE,
            messages.LINE_TOO_LONG,
            messages.COMPRESSED_ARRAYS_TOO_LARGE,
        ),
    ):
        read(path, name, 1)


def test_the_bound_is_half_a_gigabyte():
    assert spans.MAX_CHUNK_BYTES == 512 << 20
