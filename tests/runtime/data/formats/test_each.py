"""Particulars of each format: vectors, quotes, links, bombs, international names."""

from __future__ import annotations

import io
import struct
import tarfile
import tracemalloc

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from runtime.data.errors import FormatError
from runtime.data.formats import arrays, registry, tfrecord, webdataset
from runtime.data.span import CHUNK_BYTES
from runtime.data.splits import split_of
from runtime.errors import UsageError
from runtime.messages import data as messages
from tests.messages import either, pattern
from tests.properties import examples
from tests.runtime.data.formats import makers
from tests.runtime.data.formats.makers import chunks, make, plain, read

in_one_folder = settings(
    suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None, max_examples=examples(25)
)
SIZES = st.sampled_from([1, 50, CHUNK_BYTES])


# --- TFRecord --------------------------------------------------------------------------------------------------------
def test_known_records_of_tensorflow(tmp_path):
    makers.of_tensorflow(tmp_path / "known", [b"hello", b""])
    known = "0500000000000000 eab2043e 68656c6c6f bb1f1c19 0000000000000000 29039807 d8ea82a2"
    assert (tmp_path / "known").read_bytes() == bytes.fromhex(known)


def test_a_changed_byte_of_a_record_is_found(tmp_path):
    path, _rows = make("tfrecord", tmp_path)
    content = bytearray(path.read_bytes())
    content[13] ^= 1
    path.write_bytes(content)
    with pytest.raises(FormatError, match=f"offset 12{pattern(messages.RECORD_CHECKSUM_MISMATCH)}"):
        read(path, "tfrecord")


def test_a_length_that_is_no_length_is_found_by_the_index(tmp_path):
    (tmp_path / "wrong").write_bytes(struct.pack("<QI", 1 << 60, 7) + bytes(50))
    with pytest.raises(FormatError, match=pattern(messages.TFRECORD_MISSING)):
        chunks(tmp_path / "wrong", "tfrecord")


@in_one_folder
@given(rows=st.lists(st.binary(max_size=80), max_size=12), size=SIZES)
def test_records_of_tensorflow_come_back(rows, size, tmp_path):
    makers.of_tensorflow(tmp_path / "data", rows)
    assert read(tmp_path / "data", "tfrecord", size) == rows


# --- JSON lines, text ------------------------------------------------------------------------------------------------
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
    max_leaves=3,
)


@settings(in_one_folder, max_examples=examples(15))
@given(rows=st.lists(JSON, max_size=4), size=SIZES)
def test_values_of_json_lines_come_back(rows, size, tmp_path):
    makers.json_lines(tmp_path / "data", rows)
    assert read(tmp_path / "data", "jsonl", size) == rows


def test_a_line_that_is_no_json_is_named(tmp_path):
    (tmp_path / "data.jsonl").write_text('{"a": 1}\n\n{"a": \n')
    with pytest.raises(FormatError, match=pattern(messages.JSON_LINE_INVALID)):
        read(tmp_path / "data.jsonl")


def test_json_that_is_nested_too_deeply_is_refused(tmp_path):
    (tmp_path / "data.jsonl").write_text("[" * 100_000)
    with pytest.raises(FormatError, match=pattern(messages.JSON_LINE_INVALID)):
        read(tmp_path / "data.jsonl")


@in_one_folder
@given(
    rows=st.lists(
        st.text(st.characters(exclude_characters="\r\n", exclude_categories=["Cs"]), max_size=9), max_size=12
    ),
    end=st.sampled_from(["\n", "\r\n"]),
    size=SIZES,
)
def test_lines_of_text_come_back(rows, end, size, tmp_path):
    (tmp_path / "data").write_bytes(end.join([*rows, ""]).encode())
    expected = [rows[0].removeprefix("\ufeff"), *rows[1:]] if rows else []
    assert read(tmp_path / "data", "text", size) == expected


def test_the_last_line_needs_no_end_and_the_mark_of_editors_is_passed_over(tmp_path):
    (tmp_path / "data.txt").write_bytes(b"\xef\xbb\xbfone\ntwo")
    assert read(tmp_path / "data.txt") == ["one", "two"]


def test_text_that_is_not_utf8_is_reported(tmp_path):
    (tmp_path / "data.txt").write_bytes("größe".encode("latin-1"))
    with pytest.raises(FormatError, match=pattern(messages.TEXT_NOT_UTF8)):
        read(tmp_path / "data.txt")


# --- CSV -------------------------------------------------------------------------------------------------------------
CELLS = st.lists(st.sampled_from(["a", "数", '"', ",", "\n", "\r\n", " ", "7"]), max_size=5).map("".join)


@in_one_folder
@given(rows=st.lists(st.fixed_dictionaries({"x": CELLS, "y": CELLS}), min_size=1, max_size=10), size=SIZES)
def test_rows_with_quotes_and_line_ends_come_back(rows, size, tmp_path):
    makers.comma_separated(tmp_path / "data.csv", rows)
    assert read(tmp_path / "data.csv", None, size) == rows


def test_a_file_without_names_returns_tuples(tmp_path):
    (tmp_path / "data.csv").write_text("1,2\n3,4\n")
    assert read(tmp_path / "data.csv") == [("1", "2"), ("3", "4")]


def test_tabs_part_the_cells_of_tsv(tmp_path):
    (tmp_path / "data.tsv").write_text("a\tb\n1,5\t2\n")
    assert read(tmp_path / "data.tsv") == [{"a": "1,5", "b": "2"}]


def test_an_unclosed_quote_is_reported(tmp_path):
    (tmp_path / "data.csv").write_text('a,b\n1,"2\n3,4\n')
    with pytest.raises(FormatError, match=pattern(messages.CSV_QUOTE_UNCLOSED)):
        read(tmp_path / "data.csv")


def test_a_row_of_another_length_is_named(tmp_path):
    (tmp_path / "data.csv").write_text("a,b\n1,2\n3\n")
    with pytest.raises(FormatError, match=f"record 1{pattern(messages.CSV_CELL_COUNT_MISMATCH, count=1, expected=2)}"):
        read(tmp_path / "data.csv")


# --- WebDataset ------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("form", [tarfile.USTAR_FORMAT, tarfile.GNU_FORMAT, tarfile.PAX_FORMAT])
def test_long_and_foreign_names_are_read_in_every_form_of_tar(form, tmp_path):
    key = "a" * 90 + "/" + "b" * 60 if form == tarfile.USTAR_FORMAT else "ordner/" + "größe 数字 " * 40
    samples = [{"__key__": key, "jpg": b"x" * 700, "seg.png": b"y"}, {"__key__": "z", "jpg": b""}]
    makers.tar(tmp_path / "data.tar", samples, form)
    assert read(tmp_path / "data.tar", None, 1) == samples
    assert len(chunks(tmp_path / "data.tar", None, 1)) == 2


@in_one_folder
@given(
    contents=st.lists(
        st.dictionaries(st.sampled_from(["jpg", "cls", "seg.png"]), st.binary(max_size=600), min_size=1), max_size=6
    ),
    size=SIZES,
)
def test_samples_come_back(contents, size, tmp_path):
    samples = [{"__key__": f"{number:04}", **content} for number, content in enumerate(contents)]
    makers.tar(tmp_path / "data", samples)
    assert read(tmp_path / "data", "webdataset", size) == samples


def test_folders_and_members_without_a_dot_belong_to_no_sample(tmp_path):
    with tarfile.open(tmp_path / "data.tar", "w") as archive:
        folder = tarfile.TarInfo("train")
        folder.type = tarfile.DIRTYPE
        archive.addfile(folder)
        archive.addfile(tarfile.TarInfo("train/README"))
        archive.addfile(tarfile.TarInfo("train/.hidden"))
        archive.addfile(tarfile.TarInfo("train/a.cls"))
    assert read(tmp_path / "data.tar") == [{"__key__": "train/a", "cls": b""}]


@pytest.mark.parametrize("name", ["../a.jpg", "/etc/a.jpg", "a/../../b.jpg", "a/.."])
def test_a_name_that_leads_out_of_the_folder_is_refused(name, tmp_path):
    with tarfile.open(tmp_path / "data.tar", "w") as archive:
        archive.addfile(tarfile.TarInfo(name))
    with pytest.raises(FormatError, match=pattern(messages.TAR_MEMBER_OUTSIDE_FOLDER)):
        chunks(tmp_path / "data.tar")


@pytest.mark.parametrize(
    "kind", [tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.CHRTYPE, tarfile.FIFOTYPE, tarfile.GNUTYPE_SPARSE]
)
def test_paths_that_are_not_files_are_refused(kind, tmp_path):
    with tarfile.open(tmp_path / "data.tar", "w") as archive:
        member = tarfile.TarInfo("a.jpg")
        member.type, member.linkname = kind, "/etc/passwd"
        archive.addfile(member)
    with pytest.raises(FormatError, match=pattern(messages.TAR_MEMBER_NOT_REGULAR)):
        chunks(tmp_path / "data.tar")


@pytest.mark.parametrize("size", ["77777777777", 1 << 62])
def test_a_member_that_announces_more_than_the_file_has_takes_no_memory(size, tmp_path):
    member = tarfile.TarInfo("a.jpg")
    member.size = int(size, 8) if isinstance(size, str) else size
    (tmp_path / "data.tar").write_bytes(member.tobuf(tarfile.GNU_FORMAT) + bytes(4096))
    tracemalloc.start()
    try:
        with pytest.raises(FormatError, match=pattern(messages.TAR_MEMBER_TRUNCATED)):
            chunks(tmp_path / "data.tar")
        assert tracemalloc.get_traced_memory()[1] < 8 << 20
    finally:
        tracemalloc.stop()


def test_a_name_of_megabytes_is_refused(tmp_path):
    head = tarfile.TarInfo("long")
    head.type, head.size = tarfile.GNUTYPE_LONGNAME, 64 << 20
    with (tmp_path / "data.tar").open("wb") as file:
        file.write(head.tobuf(tarfile.GNU_FORMAT))
        file.truncate(65 << 20)
    with pytest.raises(FormatError, match=pattern(messages.TAR_MEMBER_HEADER_TOO_LARGE)):
        chunks(tmp_path / "data.tar")


def test_two_members_of_one_name_in_a_sample_are_refused(tmp_path):
    with tarfile.open(tmp_path / "data.tar", "w") as archive:
        archive.addfile(tarfile.TarInfo("a.jpg"))
        archive.addfile(tarfile.TarInfo("a.JPG"))
    with pytest.raises(FormatError, match=pattern(messages.SAMPLE_MEMBER_DUPLICATE)):
        chunks(tmp_path / "data.tar")


@pytest.mark.parametrize(("name", "safe"), [("a/b", True), ("..a", True), ("a/..", False), ("", False), ("a\0", False)])
def test_which_names_are_safe(name, safe):
    assert webdataset.is_safe(name) is safe


# --- NumPy -----------------------------------------------------------------------------------------------------------
@in_one_folder
@given(
    shape=st.tuples(st.integers(0, 5), st.integers(1, 3), st.integers(1, 3)),
    dtype=st.sampled_from(["<f4", ">i8", "u1", "<U3", "?"]),
    size=SIZES,
)
def test_rows_of_an_array_come_back(shape, dtype, size, tmp_path):
    array = np.arange(np.prod(shape)).reshape(shape).astype(dtype)
    np.save(tmp_path / "data.npy", array)
    assert [row.tolist() for row in read(tmp_path / "data.npy", "npy", size)] == array.tolist()


@pytest.mark.parametrize("save", [np.savez, np.savez_compressed])
@pytest.mark.parametrize("size", [1, 50, CHUNK_BYTES])
def test_rows_of_several_arrays_come_together(save, size, tmp_path):
    x, y = np.arange(12.0).reshape(6, 2), np.arange(6)
    save(tmp_path / "data.npz", x=x, y=y)
    found = read(tmp_path / "data.npz", None, size)
    assert [plain(row) for row in found] == [{"x": a.tolist(), "y": b} for a, b in zip(x, y.tolist(), strict=True)]


@pytest.mark.parametrize(
    ("array", "why"),
    [
        (np.array([{}], object), pattern(messages.ARRAY_OF_OBJECTS)),
        (np.array(3.0), pattern(messages.ARRAY_WITHOUT_ROWS)),
        (np.ones((4, 0)), pattern(messages.ARRAY_ROWS_EMPTY)),
    ],
)
def test_an_array_that_has_no_rows_of_plain_values_is_refused(array, why, tmp_path):
    np.save(tmp_path / "data.npy", array, allow_pickle=True)
    np.savez(tmp_path / "data.npz", x=array)
    for name in ("data.npy", "data.npz"):
        with pytest.raises(FormatError, match=why):
            chunks(tmp_path / name)


def test_arrays_of_different_lengths_are_reported(tmp_path):
    np.savez(tmp_path / "data.npz", x=np.ones(3), y=np.ones(4))
    with pytest.raises(FormatError, match=pattern(messages.ARRAY_LENGTHS_DIFFER, counts="x 3, y 4")):
        chunks(tmp_path / "data.npz")


@pytest.mark.parametrize("size", [1, 100, CHUNK_BYTES])
@pytest.mark.parametrize("save", [np.savez, np.savez_compressed])
def test_arrays_in_fortran_order_give_their_rows(save, size, tmp_path):
    """As pandas returns its columns."""
    x = np.asfortranarray(np.arange(24.0).reshape(4, 3, 2))
    np.save(tmp_path / "data.npy", x)
    save(tmp_path / "data.npz", x=x, y=np.arange(4))
    assert [row.tolist() for row in read(tmp_path / "data.npy", None, size)] == x.tolist()
    assert [row["x"].tolist() for row in read(tmp_path / "data.npz", None, size)] == x.tolist()


def test_a_row_of_an_array_in_fortran_order_that_has_changed_is_refused(tmp_path):
    np.save(tmp_path / "data.npy", np.asfortranarray(np.ones((4, 3))))
    spans = chunks(tmp_path / "data.npy", None, 24)
    content = bytearray((tmp_path / "data.npy").read_bytes())
    content[-1] ^= 1  # of the last row's last column
    (tmp_path / "data.npy").write_bytes(content)
    npy = registry.named("npy")
    assert [row.tolist() for row in npy.read(tmp_path / "data.npy", spans[0])] == [[1, 1, 1]]
    with pytest.raises(FormatError, match=pattern(messages.FILE_CHANGED_SINCE_INDEXED)):
        list(npy.read(tmp_path / "data.npy", spans[-1]))


def test_an_array_of_version_3_is_read(tmp_path):
    """Which NumPy writes for names that are not Latin."""
    array = np.array([(1, 2.5), (3, 4.5)], [("数", "i4"), ("y", "f4")])
    with pytest.warns(UserWarning, match=r"format 3\.0"):
        np.save(tmp_path / "data.npy", array)
    assert (tmp_path / "data.npy").read_bytes()[6:8] == b"\3\0"
    assert [row.item() for row in read(tmp_path / "data.npy", None, 1)] == [(1, 2.5), (3, 4.5)]


@pytest.mark.parametrize("save", [np.savez, np.savez_compressed])
@pytest.mark.parametrize(
    "names",
    [
        ("x_train", "y_train", "x_test", "y_test"),
        ("test_x", "test_y", "train_x", "train_y"),
        ("x.val", "y.val", "x.dev", "y.dev"),
    ],
)
def test_arrays_that_name_their_split_are_its_columns(save, names, tmp_path):
    """As mnist.npz of Keras and MedMNIST have them."""
    first, second = np.arange(6.0).reshape(3, 2), np.arange(4.0).reshape(2, 2)
    arrays = dict(zip(names, (first, np.arange(3), second, np.arange(2)), strict=True))
    save(tmp_path / "data.npz", **arrays)
    if len({split_of(name) for name in names}) == 1:
        with pytest.raises(FormatError, match=pattern(messages.ARRAY_LENGTHS_DIFFER)):
            chunks(tmp_path / "data.npz")
        return
    spans = chunks(tmp_path / "data.npz", None, 1)
    assert list(dict.fromkeys(span.split for span in spans)) == [split_of(names[0]), split_of(names[2])]
    found = [plain(row) for row in read(tmp_path / "data.npz", None, 1)]
    assert found == [{"x": row, "y": y} for part in (first, second) for y, row in enumerate(part.tolist())]


def test_arrays_of_splits_that_differ_in_length_within_one_are_refused(tmp_path):
    np.savez(tmp_path / "data.npz", x_train=np.ones(3), y_train=np.ones(4), x_test=np.ones(2))
    with pytest.raises(FormatError, match=pattern(messages.ARRAY_LENGTHS_DIFFER, counts="x 3, y 4")):
        chunks(tmp_path / "data.npz")


def test_a_header_that_announces_more_than_the_file_has_is_refused(tmp_path):
    np.save(tmp_path / "data.npy", np.ones((2, 3)))
    content = (tmp_path / "data.npy").read_bytes()
    (tmp_path / "data.npy").write_bytes(content.replace(b"(2, 3), }   ", b"(98765, 3),}"))
    with pytest.raises(FormatError, match=pattern(messages.ARRAY_TRUNCATED)):
        chunks(tmp_path / "data.npy")


def test_a_bomb_of_zeros_is_refused_before_it_is_unpacked(tmp_path, monkeypatch):
    """16 MB of zeros in 16 kB, and a bound of one."""
    monkeypatch.setattr(arrays, "MAX_CHUNK_BYTES", 1 << 20)
    np.savez_compressed(tmp_path / "data.npz", x=np.zeros(16 << 20, np.uint8))
    tracemalloc.start()
    try:
        with pytest.raises(FormatError, match=pattern(messages.COMPRESSED_ARRAYS_TOO_LARGE)):
            chunks(tmp_path / "data.npz")
        assert tracemalloc.get_traced_memory()[1] < 1 << 20
    finally:
        tracemalloc.stop()


def test_a_member_that_unpacks_to_more_than_it_announces_is_refused(tmp_path):
    np.savez_compressed(tmp_path / "data.npz", x=np.zeros(200_000))
    content = bytearray((tmp_path / "data.npz").read_bytes())
    place = content.rindex(b"PK\x01\x02")
    content[place + 24 : place + 28] = struct.pack("<I", 1_000)
    (tmp_path / "data.npz").write_bytes(content)
    with pytest.raises(FormatError, match=pattern(messages.NPZ_INVALID)):
        chunks(tmp_path / "data.npz")


def test_members_that_lie_over_each_other_are_refused(tmp_path):
    np.savez(tmp_path / "data.npz", x=np.ones(5), y=np.ones(5))
    content = bytearray((tmp_path / "data.npz").read_bytes())
    second = content.rindex(b"PK\x01\x02")
    content[second + 42 : second + 46] = bytes(4)
    (tmp_path / "data.npz").write_bytes(content)
    with pytest.raises(FormatError, match=r"over each other|no file of np.savez"):
        chunks(tmp_path / "data.npz")


# --- Files and labels ------------------------------------------------------------------------------------------------
def test_labels_are_numbers_where_they_are_digits(tmp_path):
    path, rows = make("list", tmp_path)
    assert read(path) == rows


def test_images_may_lie_in_folders_with_names_of_all_the_world(tmp_path):
    (tmp_path / "图片 1").mkdir()
    (tmp_path / "图片 1" / "größe.jpg").write_bytes(b"x")
    (tmp_path / "train.list").write_text("图片 1/größe.jpg\t猫\r\n")
    assert read(tmp_path / "train.list") == [(b"x", "猫")]


@pytest.mark.parametrize("line", ["../secret\t1", "/etc/passwd\t1", "a.jpg 1", "a.jpg", "\t1"])
def test_a_line_that_names_no_file_below_is_refused(line, tmp_path):
    (tmp_path / "train.list").write_text(line + "\n")
    with pytest.raises(FormatError, match=pattern(messages.LIST_LINE_INVALID)):
        chunks(tmp_path / "train.list")


def test_a_link_that_leads_out_of_the_folder_is_refused(tmp_path):
    (tmp_path / "secret").write_bytes(b"secret")
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "a.jpg").symlink_to(tmp_path / "secret")
    (tmp_path / "data" / "b").symlink_to(tmp_path)
    (tmp_path / "data" / "c.jpg").symlink_to("c.jpg")
    for name in ("a.jpg", "b/secret", "c.jpg", "."):
        (tmp_path / "data" / "train.list").write_text(f"{name}\t1\n")
        with pytest.raises(
            FormatError,
            match=either(messages.LISTED_FILE_OUTSIDE_FOLDER, messages.LISTED_FILE_UNREADABLE),
        ):
            read(tmp_path / "data" / "train.list")


def test_a_missing_image_is_named(tmp_path):
    (tmp_path / "train.list").write_text("a.jpg\t1\n")
    with pytest.raises(FormatError, match=pattern(messages.LISTED_FILE_UNREADABLE)):
        read(tmp_path / "train.list")


# --- Parquet ---------------------------------------------------------------------------------------------------------
def test_without_its_package_parquet_names_what_to_install(tmp_path, monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "pyarrow.parquet", None)
    (tmp_path / "data.parquet").write_bytes(b"PAR1")
    with pytest.raises(UsageError, match=pattern(messages.PACKAGE_REQUIRED, package="pyarrow")):
        chunks(tmp_path / "data.parquet")


@pytest.mark.formats
def test_row_groups_are_chunks_and_are_read_a_few_rows_at_a_time(tmp_path):
    path, rows = make("parquet", tmp_path, [{"a": 1}] * 5)
    assert [span.records for span in chunks(path)] == [2, 2, 1]
    assert read(path) == rows


@pytest.mark.formats
def test_numbers_in_lists_keep_their_type(tmp_path):
    import pyarrow
    from pyarrow import parquet

    columns = {
        "f4": pyarrow.array([[1.5, 2.5], [3.5]], pyarrow.list_(pyarrow.float32())),
        "fixed": pyarrow.array([[1, 2], [3, 4]], pyarrow.list_(pyarrow.uint8(), 2)),
        "nested": pyarrow.array([[[1.0], [2.0]], [[3.0], [4.0]]], pyarrow.list_(pyarrow.list_(pyarrow.float64()))),
        "holes": pyarrow.array([[1, None], None], pyarrow.list_(pyarrow.int16())),
        "text": pyarrow.array([["a"], ["b"]]),
        "large": pyarrow.array([2**64 - 1, 0], pyarrow.uint64()),
    }
    parquet.write_table(pyarrow.table(columns), tmp_path / "data.parquet")
    first, second = read(tmp_path / "data.parquet")
    assert {name: first[name].dtype.name for name in ("f4", "fixed", "nested")} == {
        "f4": "float32",
        "fixed": "uint8",
        "nested": "float64",
    }
    assert (first["holes"], second["holes"], first["text"], first["large"]) == ([1, None], None, ["a"], 2**64 - 1)


def test_a_record_of_tensorflow_is_recognised_without_its_name():
    file = io.BytesIO()
    tfrecord.write(file, b"hello")
    assert tfrecord.recognise(file.getvalue())
    assert registry.FORMATS["tfrecord"].recognise(file.getvalue())
