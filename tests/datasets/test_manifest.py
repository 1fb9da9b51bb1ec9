"""Paths, parts and the manifest: invalid ones are refused, and valid ones are read back unchanged."""

from __future__ import annotations

import json
import unicodedata
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from datasets import manifest, messages
from datasets.manifest import MIB, BadManifest, BadPath, Chunk, Entry, Manifest, Parts
from tests.messages import pattern

SHA = "0" * 64
NAMES = st.text(st.characters(categories=("L", "N", "P", "Zs"), exclude_characters="/\\"), min_size=1, max_size=20)
PATHS = st.lists(NAMES, min_size=1, max_size=4).map("/".join)


# --- Paths -----------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("path", "why"),
    [
        ("", pattern(messages.PATH_WITHOUT_FILE_NAME)),
        ("/etc/passwd", pattern(messages.PATH_NOT_RELATIVE)),
        ("C:\\data", pattern(messages.PATH_NOT_RELATIVE)),
        ("c:data", pattern(messages.PATH_NOT_RELATIVE)),
        ("\\\\server\\share", pattern(messages.PATH_NOT_RELATIVE)),
        ("../up", pattern(messages.PATH_OUTSIDE_DATASET)),
        ("a/../../b", pattern(messages.PATH_OUTSIDE_DATASET)),
        ("a/..", pattern(messages.PATH_OUTSIDE_DATASET)),
        ("a\\b", pattern(messages.PATH_WITH_BACKSLASH)),
        ("a\x00b", pattern(messages.PATH_WITH_INVISIBLE_CHARACTER)),
        ("a\nb", pattern(messages.PATH_WITH_INVISIBLE_CHARACTER)),
        ("a\u202eb", pattern(messages.PATH_WITH_INVISIBLE_CHARACTER)),  # changes the writing direction
        ("a\u200bb", pattern(messages.PATH_WITH_INVISIBLE_CHARACTER)),
        ("a\ud800b", pattern(messages.PATH_WITH_INVISIBLE_CHARACTER)),
        (".hidden", pattern(messages.PATH_NAME_BEGINS_WITH_DOT)),
        ("a/.git/config", pattern(messages.PATH_NAME_BEGINS_WITH_DOT)),
        ("a/ b", pattern(messages.PATH_NAME_EDGE_SPACE)),
        ("a /b", pattern(messages.PATH_NAME_EDGE_SPACE)),
        ("folder/", pattern(messages.PATH_WITHOUT_FILE_NAME)),
        ("a" * 501, pattern(messages.PATH_TOO_LONG, count=500)),
        ("名" * 67, pattern(messages.PATH_NAME_TOO_LONG, count=200)),
        ("/".join("a" * 17), pattern(messages.PATH_TOO_DEEP)),
    ],
)
def test_a_harmful_path_is_refused_with_its_reason(path: str, why: str) -> None:
    with pytest.raises(BadPath, match=why):
        manifest.normalise(path)


@pytest.mark.parametrize("path", ["a", "train/0001.tar", "图像/猫.png", "a..b/c", "two words/x.csv", "e\u0301.txt"])
def test_ordinary_paths_are_accepted(path: str) -> None:
    assert manifest.normalise(path) == unicodedata.normalize("NFC", path)


@given(st.text(max_size=60))
def test_an_accepted_path_stays_inside_and_is_canonical(path: str) -> None:
    try:
        taken = manifest.normalise(path)
    except BadPath:
        return  # refused: covered by the other test
    assert manifest.normalise(taken) == taken
    assert not taken.startswith("/") and ".." not in taken.split("/") and taken.isprintable()


@given(PATHS)
def test_composed_and_decomposed_are_one_path(path: str) -> None:
    try:
        taken = manifest.normalise(path)
    except BadPath:
        return  # refused: covered by the other test
    assert manifest.normalise(unicodedata.normalize("NFD", path)) == taken


@pytest.mark.parametrize(
    ("path", "other"),
    [("A.txt", "a.txt"), ("straße", "STRASSE"), ("\ufb01le", "file"), ("ａ", "a"), ("x/Ä", "x/a\u0308")],
)
def test_two_paths_that_a_file_system_may_mix_up_are_one_when_folded(path: str, other: str) -> None:
    assert manifest.folded(path) == manifest.folded(other)


def test_neighbours_are_two_when_folded() -> None:
    assert len({manifest.folded(path) for path in ("a/b", "a/c", "ab", "b")}) == 4


def test_the_folders_of_a_path_are_its_ancestors() -> None:
    assert manifest.ancestors("A/b/c.txt") == ["a", "a/b"]


# --- Parts -----------------------------------------------------------------------------------------------------------
SIZES = st.integers(0, 2**43)


@given(SIZES)
def test_there_are_never_too_many_parts_and_their_length_is_whole_mib(size: int) -> None:
    part_size = manifest.part_size_for(size)
    assert Parts(size, part_size).count <= manifest.MOST_PARTS
    assert part_size % MIB == 0 and part_size >= manifest.SMALLEST_PART


@pytest.mark.parametrize(
    ("size", "part_size"),
    [(0, 8), (512 * MIB, 8), (512 * MIB + 1, 9), (2048 * MIB, 32), (10 * 1024 * MIB, 32), (320_000 * MIB + 1, 33)],
)
def test_larger_files_have_larger_parts_within_limits(size: int, part_size: int) -> None:
    assert manifest.part_size_for(size) == part_size * MIB


@given(st.integers(0, 5000), st.integers(1, 700))
def test_parts_cover_the_file_without_gap_or_overlap(size: int, part_size: int) -> None:
    parts = Parts(size, part_size)
    end = 0
    for number in range(parts.count):
        offset, length = parts.span(number)
        assert offset == end and length > 0
        end = offset + length
    assert end == size


@pytest.mark.parametrize("number", [-1, 2, 10**9])
def test_a_part_that_the_file_does_not_have_is_refused(number: int) -> None:
    with pytest.raises(LookupError):
        Parts(10, 5).span(number)


def test_missing_parts_are_those_that_are_not_there() -> None:
    assert Parts(10, 3).missing({0, 3, 99}) == [1, 2]
    assert Parts(0, 3).missing(set()) == []


# --- Manifest --------------------------------------------------------------------------------------------------------
@st.composite
def entries(draw: st.DrawFn) -> tuple[Entry, ...]:
    made = []
    for index in range(draw(st.integers(0, 4))):
        chunks, end = [], 0
        for _ in range(draw(st.integers(0, 4))):
            offset = end + draw(st.integers(0, 9))
            end = offset + draw(st.integers(1, 99))
            digest = draw(st.none() | st.integers(0, 2**32 - 1))
            chunks.append(Chunk(offset, end - offset, draw(st.integers(0, 9)), digest))
        records = sum(chunk.records for chunk in chunks) if chunks else draw(st.none() | st.integers(0, 9))
        path = f"{index}/数据 {draw(st.integers(0, 9))}.bin"
        format_ = draw(st.sampled_from(["", "csv"]))
        made.append(Entry(path, end + draw(st.integers(0, 9)), SHA, format_, records, tuple(chunks)))
    return tuple(made)


@given(entries())
def test_a_manifest_is_read_back_unchanged(files: tuple[Entry, ...]) -> None:
    made = Manifest("team/mine", 2, files)
    assert manifest.load(made.dump()) == made
    assert made.size == sum(entry.size for entry in files)


GOOD = Entry("a.recordio", 100, SHA, "recordio", 5, (Chunk(0, 60, 3), Chunk(60, 40, 2)))


@pytest.mark.parametrize(
    ("entry", "why"),
    [
        (replace(GOOD, path="../a"), pattern(messages.PATH_OUTSIDE_DATASET)),
        (replace(GOOD, path="a//b"), "not spelled"),
        (replace(GOOD, sha256="x"), "digest"),
        (replace(GOOD, chunks=(Chunk(0, 60, 5, 2**32),)), "digest"),
        (replace(GOOD, size=99), "leaves the file"),
        (replace(GOOD, chunks=(Chunk(0, 61, 3), Chunk(60, 40, 2))), "overlaps"),
        (replace(GOOD, chunks=(Chunk(0, 0, 5),)), "overlaps"),
        (replace(GOOD, records=4), "other records"),
    ],
)
def test_an_inconsistent_manifest_is_not_written(entry: Entry, why: str) -> None:
    with pytest.raises(BadManifest, match=why):
        Manifest("team/mine", 1, (entry,)).dump()


@pytest.mark.parametrize(("one", "other"), [("a", "A"), ("a", "a/b")])
def test_a_manifest_has_no_two_files_in_one_place(one: str, other: str) -> None:
    with pytest.raises(BadManifest, match=r"twice|which is a file"):
        Manifest("team/mine", 1, (Entry(one, 1, SHA), Entry(other, 1, SHA))).dump()


@given(st.recursive(st.none() | st.integers() | st.text(max_size=5), lambda inner: st.lists(inner, max_size=3)))
def test_other_documents_are_refused_with_a_message(body: object) -> None:
    for document in (json.dumps(body), json.dumps({"format": 2, "dataset": "a/b", "version": 1, "files": body})):
        try:
            manifest.load(document.encode())
        except BadManifest as error:
            assert str(error)
