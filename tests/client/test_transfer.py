"""Upload and download of whole datasets."""

from __future__ import annotations

import hashlib
import random
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from regatta import Client, transfer, tree
from regatta.errors import BadFile, Missing, PortalError, Unreachable
from tests.client.data_portal import PART, DataPortal, at_random
from tests.client.portal import SERVER, ok, problem


def client(portal: httpx.BaseTransport) -> Client:
    return Client(SERVER, "rgt_x", transport=portal, sleep=lambda _seconds: None)


@pytest.fixture(params=["hashed before", "read for its digest while it is sent"])
def _both_ways(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    if request.param != "hashed before":
        monkeypatch.setattr(transfer, "HASHED_BEFORE", -1)


both_ways = pytest.mark.usefixtures("_both_ways")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Files of zero, less than one, exactly some, and many parts; in folders; with non-Latin names."""
    dice = random.Random(7)
    for name, size in {"empty": 0, "a.bin": 10, "deep/b.bin": 3 * PART, "deep/数据.bin": 20 * PART + 1}.items():
        file = tmp_path / "data" / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(dice.randbytes(size))
    return tmp_path / "data"


def contents(folder: Path) -> dict[str, bytes]:
    return {file.relative_to(folder).as_posix(): file.read_bytes() for file in folder.rglob("*") if file.is_file()}


# --- Upload ----------------------------------------------------------------------------------------------------------
@both_ways
def test_a_folder_arrives_complete_and_is_sealed(folder: Path) -> None:
    portal = DataPortal()
    version = client(portal).datasets.upload("ada/mine", folder)
    assert (version.state, portal.files) == ("sealed", contents(folder))


@both_ways
def test_an_upload_that_is_killed_repeatedly_resumes(folder: Path) -> None:
    portal, api, kills = DataPortal(at_random(3, 0.7)), None, 0
    while portal.state != "sealed" and kills < 200:
        api = client(portal)
        try:
            api.datasets.upload("ada/mine", folder)
        except PortalError:
            kills += 1
    assert (portal.files, portal.state) == (contents(folder), "sealed")
    assert kills >= 5
    # No part came twice except those whose response was lost.
    assert portal.sent == sum(map(len, contents(folder).values()))


@both_ways
def test_content_that_the_portal_has_is_not_sent_again(folder: Path) -> None:
    portal = DataPortal()
    client(portal).datasets.upload("ada/mine", folder)
    before, portal.state = portal.sent, "open"
    client(portal).datasets.upload("ada/mine", folder)
    assert portal.sent == before


def test_nothing_old_is_kept_of_an_interrupted_file_that_changed_since(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(transfer, "HASHED_BEFORE", -1)
    file = folder / "deep" / "数据.bin"
    sent = 0

    def breaks() -> bool:
        nonlocal sent
        sent += 1
        return 10 < sent < 40

    portal = DataPortal(breaks)
    with pytest.raises(PortalError):
        client(portal).datasets.upload("ada/mine", file)
    assert portal.parts[file.name] and not portal.files
    file.write_bytes(b"?" + file.read_bytes()[1:])
    portal.sent, sent = 0, 100
    client(portal).datasets.upload("ada/mine", file)
    assert portal.files == {file.name: file.read_bytes()}
    assert portal.sent == file.stat().st_size


def test_a_large_file_is_on_its_way_before_all_of_it_is_read(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transfer, "HASHED_BEFORE", -1)
    read: list[int] = []
    reads = tree.Checksums.__iter__

    def counted(checksums: tree.Checksums) -> Iterator[tuple[int, str]]:
        for part in reads(checksums):
            read.append(part[0])
            yield part

    monkeypatch.setattr(tree.Checksums, "__iter__", counted)
    begun: list[int] = []

    class NotesHowMuchIsRead(DataPortal):
        def _part(self, request: httpx.Request, file: str, part: str) -> httpx.Response:
            begun.append(len(read))
            return super()._part(request, file, part)

    client(NotesHowMuchIsRead()).datasets.upload("ada/mine", folder / "deep" / "数据.bin")
    most = transfer.STREAMS * (1 + transfer.AHEAD) + 1
    assert len(begun) == 21 and begun[0] <= most < 21 and max(begun) == 21


def test_progress_separates_hashing_from_sending_and_reaches_the_total(folder: Path) -> None:
    totals: list[tuple[str, int]] = []
    done: dict[str, int] = {}

    class Recorder:
        def begin(self, what: str, total: int) -> None:
            totals.append((what, total))

        def advance(self, count: int) -> None:
            done[totals[-1][0]] = done.get(totals[-1][0], 0) + count

    client(DataPortal()).datasets.upload("ada/mine", folder, progress=Recorder())
    total = sum(map(len, contents(folder).values()))
    assert totals == [("Hashing", total), ("Uploading", total)]
    assert done == {"Hashing": total, "Uploading": total}


class ReadsLargeFilesSlowly(DataPortal):
    """Reports each file a few times as still being read."""

    def __init__(self) -> None:
        super().__init__()
        self.asked = 0

    def _complete(self, request: httpx.Request, file: str) -> httpx.Response:
        self.asked += 1
        if self.asked % 3:
            path = bytes.fromhex(file).decode()
            return ok({**self._upload(path, 1), "complete": False}, 202)
        return super()._complete(request, file)


def test_a_file_that_the_portal_still_reads_is_requested_again(folder: Path) -> None:
    portal = ReadsLargeFilesSlowly()
    client(portal).datasets.upload("ada/mine", folder / "deep" / "b.bin")
    assert (portal.state, set(portal.files)) == ("sealed", {"b.bin"})


@both_ways
def test_a_changed_file_replaces_the_one_sent_before(folder: Path) -> None:
    portal = DataPortal()
    client(portal).datasets.upload("ada/mine", folder)
    portal.state = "open"
    (folder / "a.bin").write_bytes(b"another")
    client(portal).datasets.upload("ada/mine", folder)
    assert portal.files == contents(folder)


def test_hidden_files_of_a_folder_are_skipped(folder: Path) -> None:
    (folder / ".git").mkdir()
    (folder / ".git" / "config").write_text("x")
    (folder / ".DS_Store").write_text("x")
    portal = DataPortal()
    client(portal).datasets.upload("ada/mine", folder)
    assert not [path for path in portal.files if path.startswith(".")]


class ChangesAFile(DataPortal):
    """Writes into a file while its parts are sent."""

    def __init__(self, file: Path) -> None:
        super().__init__()
        self._file = file

    def _part(self, request: httpx.Request, file: str, part: str) -> httpx.Response:
        self._file.write_bytes(b"other" * PART)
        return super()._part(request, file, part)


@both_ways
def test_a_file_that_changes_while_it_is_uploaded_is_named_and_nothing_is_sealed(folder: Path) -> None:
    portal = ChangesAFile(folder / "deep" / "b.bin")
    with pytest.raises(BadFile, match=r"b\.bin (changed while|is not what)"):
        client(portal).datasets.upload("ada/mine", folder / "deep" / "b.bin")
    assert portal.state == "open"


def test_links_are_not_followed(folder: Path, tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text("s")
    (folder / "link").symlink_to(secret)
    (folder / "linked").symlink_to(tmp_path)
    portal = DataPortal()
    client(portal).datasets.upload("ada/mine", folder)
    assert not {"link", "linked/secret"} & set(portal.files)
    with pytest.raises(BadFile, match="is a link"):
        client(portal).datasets.upload("ada/mine", folder / "link")


def test_patterns_of_the_ignore_file_leave_files_out(folder: Path) -> None:
    (folder / ".regattaignore").write_text("# not these\n*.bin\n")
    portal = DataPortal()
    client(portal).datasets.upload("ada/mine", folder)
    assert set(portal.files) == {"empty"}


def test_two_files_of_one_name_are_refused(tmp_path: Path) -> None:
    for directory in ("a", "b"):
        (tmp_path / directory).mkdir()
        (tmp_path / directory / "same").write_text(directory)
    with pytest.raises(BadFile, match="have the same name 'same'"):
        client(DataPortal()).datasets.upload("ada/mine", tmp_path / "a", tmp_path / "b")


def test_a_name_is_sent_in_one_form_of_unicode(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "cafe\u0301").write_text("x")
    portal = DataPortal()
    client(portal).datasets.upload("ada/mine", tmp_path / "data")
    assert set(portal.files) == {"caf\u00e9"}


@pytest.mark.parametrize("name", ["mine", "/mine", "ada/", "ada/mine/more"])
def test_a_malformed_name_is_an_error(folder: Path, name: str) -> None:
    with pytest.raises(PortalError, match="namespace/name"):
        client(DataPortal()).datasets.upload(name, folder)


def test_nothing_to_upload_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(BadFile, match="No files found in"):
        client(DataPortal()).datasets.upload("ada/mine", tmp_path)


@both_ways
def test_a_part_that_was_damaged_in_transit_is_sent_again(folder: Path) -> None:
    class Damaging(DataPortal):
        left = 1

        def _part(self, request: httpx.Request, file: str, part: str) -> httpx.Response:
            if self.left:
                self.left -= 1
                return problem(422, "checksum_mismatch", "The part is damaged.")
            return super()._part(request, file, part)

    portal = Damaging()
    assert client(portal).datasets.upload("ada/mine", folder).state == "sealed"
    assert portal.files == contents(folder)


def test_a_part_is_read_in_blocks_and_again_each_time(tmp_path: Path) -> None:
    file = tmp_path / "large"
    file.write_bytes(bytes(3 * tree.PIECE + 5))
    piece = tree.Piece(tree.LocalFile.of(file, "large"), 1, 3 * tree.PIECE)
    for _ in range(2):
        assert [len(content) for content in piece] == [tree.PIECE] * 3


def test_a_file_that_shrinks_while_a_part_of_it_is_sent_is_named(tmp_path: Path) -> None:
    file = tmp_path / "shrinks"
    file.write_bytes(bytes(10))
    piece = tree.Piece(tree.LocalFile.of(file, "shrinks"), 5, 10)
    with pytest.raises(BadFile, match="shrinks changed while it was uploaded"):
        list(piece)


# --- Download --------------------------------------------------------------------------------------------------------
def filled(folder: Path, portal: DataPortal | None = None) -> DataPortal:
    portal = portal or DataPortal()
    portal.files, portal.state = contents(folder), "sealed"
    return portal


def test_a_dataset_comes_back_bit_for_bit(folder: Path, tmp_path: Path) -> None:
    client(filled(folder)).datasets.download("ada/mine", tmp_path / "copy")
    assert contents(tmp_path / "copy") == contents(folder)


def test_correct_existing_files_are_not_fetched_again(folder: Path, tmp_path: Path) -> None:
    portal = filled(folder)
    client(portal).datasets.download("ada/mine", tmp_path / "copy")
    before = (tmp_path / "copy" / "a.bin").stat().st_ino
    (tmp_path / "copy" / "empty").write_text("spoilt")
    client(portal).datasets.download("ada/mine", tmp_path / "copy")
    assert (tmp_path / "copy" / "a.bin").stat().st_ino == before
    assert contents(tmp_path / "copy") == contents(folder)


def ranges(answer: httpx.Response) -> dict[str, str]:
    return {name: value for name, value in answer.headers.items() if name == "content-range"}


class HalfABody(DataPortal):
    """Every response with content ends in its middle."""

    def _content(self, request: httpx.Request, path: str) -> httpx.Response:
        whole = super()._content(request, path)
        size = len(whole.content)

        def half() -> object:
            yield whole.content[: -(-size // 2)]
            if size > 1:
                raise httpx.ReadError("cut")

        return httpx.Response(whole.status_code, content=half(), headers=ranges(whole))  # type: ignore[arg-type]


def test_answers_that_end_in_the_middle_are_continued(folder: Path, tmp_path: Path) -> None:
    client(filled(folder, HalfABody())).datasets.download("ada/mine", tmp_path / "copy")
    assert contents(tmp_path / "copy") == contents(folder)


class NoBody(DataPortal):
    """Content never arrives."""

    def _content(self, request: httpx.Request, path: str) -> httpx.Response:
        raise httpx.ReadError("cut")


def test_content_that_never_comes_is_an_error_and_no_file(folder: Path, tmp_path: Path) -> None:
    with pytest.raises(Unreachable):
        client(filled(folder, NoBody())).datasets.download("ada/mine", tmp_path / "copy")
    assert "a.bin" not in contents(tmp_path / "copy")


class Damages(DataPortal):
    """Returns other bytes than announced."""

    def _content(self, request: httpx.Request, path: str) -> httpx.Response:
        content = self.files[path]
        return httpx.Response(200, content=bytes(len(content)) if content else b"")


def test_damaged_content_is_an_error_and_no_file(folder: Path, tmp_path: Path) -> None:
    with pytest.raises(Unreachable, match="is corrupt"):
        client(filled(folder, Damages())).datasets.download("ada/mine", tmp_path / "copy")
    assert not {"a.bin", "a.bin.part"} & set(contents(tmp_path / "copy"))


def part_of(folder: Path, name: str, content: bytes) -> Path:
    """Write what an earlier download of the file has left."""
    part = folder / "copy" / f"{name}.part"
    part.parent.mkdir(parents=True, exist_ok=True)
    part.write_bytes(content)
    return part


@pytest.mark.parametrize("left", ["longer", "as long", "shorter"])
@pytest.mark.parametrize("beginning", ["the same", "another"])
def test_a_partial_file_of_another_version_is_not_used(folder: Path, tmp_path: Path, left: str, beginning: str) -> None:
    content = (folder / "deep" / "数据.bin").read_bytes()
    whole = {"longer": content + b"appended since", "as long": content, "shorter": content[:1234]}[left]
    part = part_of(tmp_path, "deep/数据.bin", whole if beginning == "the same" else bytes(len(whole)))
    client(filled(folder)).datasets.download("ada/mine", tmp_path / "copy")
    assert contents(tmp_path / "copy") == contents(folder)
    assert not part.exists()


class SizeIsWrong(DataPortal):
    """Lists a wrong size for a file, with the right digest of its content."""

    def _files(self, request: httpx.Request) -> httpx.Response:
        body = super()._files(request).json()
        for entry in body["results"]:
            entry["size"] += 5
        return ok(body)


def test_a_file_of_another_size_than_the_portal_lists_is_an_error_and_no_file(folder: Path, tmp_path: Path) -> None:
    with pytest.raises(Unreachable, match="ended after"):
        client(filled(folder, SizeIsWrong())).datasets.download("ada/mine", tmp_path / "copy")
    assert "a.bin" not in contents(tmp_path / "copy")


class IgnoresRange(DataPortal):
    """A proxy that returns the whole file whichever range is requested."""

    def _content(self, request: httpx.Request, path: str) -> httpx.Response:
        return httpx.Response(200, content=self.files[path])


def test_a_file_is_complete_even_if_ranges_are_ignored(folder: Path, tmp_path: Path) -> None:
    part_of(tmp_path, "deep/数据.bin", (folder / "deep" / "数据.bin").read_bytes()[:1234])
    client(filled(folder, IgnoresRange())).datasets.download("ada/mine", tmp_path / "copy")
    assert contents(tmp_path / "copy") == contents(folder)


class SendsMore(DataPortal):
    """Every response is longer than the file."""

    def _content(self, request: httpx.Request, path: str) -> httpx.Response:
        whole = super()._content(request, path)
        return httpx.Response(whole.status_code, content=whole.content + b"more", headers=ranges(whole))


def test_bytes_after_the_end_of_a_file_are_not_written(folder: Path, tmp_path: Path) -> None:
    client(filled(folder, SendsMore())).datasets.download("ada/mine", tmp_path / "copy")
    assert contents(tmp_path / "copy") == contents(folder)


class OtherPart(DataPortal):
    """Responds with a range that begins after the requested one."""

    def _content(self, request: httpx.Request, path: str) -> httpx.Response:
        whole = super()._content(request, path)
        if whole.status_code == 200:
            return whole
        return httpx.Response(206, content=whole.content, headers={"Content-Range": "bytes 9999-"})


def test_a_part_that_begins_elsewhere_is_refused(folder: Path, tmp_path: Path) -> None:
    part_of(tmp_path, "deep/数据.bin", (folder / "deep" / "数据.bin").read_bytes()[:1234])
    with pytest.raises(Unreachable, match="starts at byte 9999; requested byte 1234"):
        client(filled(folder, OtherPart())).datasets.download("ada/mine", tmp_path / "copy")


class EmptyBody(DataPortal):
    """Responds with success and an empty body."""

    def _content(self, request: httpx.Request, path: str) -> httpx.Response:
        return httpx.Response(200)


def test_an_answer_without_content_is_not_requested_for_ever(folder: Path, tmp_path: Path) -> None:
    with pytest.raises(Unreachable, match=r"ended after 0 of \d+ bytes"):
        client(filled(folder, EmptyBody())).datasets.download("ada/mine", tmp_path / "copy")


@pytest.mark.parametrize("path", ["../evil", "/etc/passwd", "a/../../evil", "a\\b", "", "."])
def test_a_file_whose_name_leads_out_of_the_folder_is_not_fetched(tmp_path: Path, path: str) -> None:
    with pytest.raises(BadFile, match="points outside"):
        tree.place_of(tmp_path, path)


def test_without_a_sealed_version_there_is_nothing_to_fetch(tmp_path: Path) -> None:
    with pytest.raises(Missing, match="no sealed version"):
        client(DataPortal()).datasets.download("ada/mine", tmp_path)


def test_a_digest_is_that_of_the_bytes(tmp_path: Path) -> None:
    (tmp_path / "f").write_bytes(b"abc" * 10**6)
    assert tree.sha256_of(tmp_path / "f") == hashlib.sha256(b"abc" * 10**6).hexdigest()
