"""Inspection of checkpoints: ``python -m runtime checkpoint ls|verify``."""

import pytest

from runtime.__main__ import main
from runtime.checkpoint import reader, writer
from runtime.checkpoint.filesystem import LocalFiles, of_attempt
from runtime.checkpoint.format import Header
from runtime.checkpoint.index import Book
from tests.runtime.checkpoint.conftest import DECLARATION, Writer, blocks

REMEDY = "Bring it back from a copy, or delete it."


@pytest.fixture
def job(tmp_path):
    """A job's directory."""
    path = tmp_path / "job"
    path.mkdir()
    return path


@pytest.fixture
def look(capsys):
    """Run the command; return its exit code and its lines."""

    def run(action, directory):
        code = main(["checkpoint", action, str(directory)])
        return code, [line.strip() for line in capsys.readouterr().out.splitlines()]

    return run


def save(store, job, attempt, index, version, shards=2):
    """Write a checkpoint of one server; return its path."""
    files, server = of_attempt(job, attempt), Writer(store, index, shards)
    book = Book(store, "job", attempt, shards)
    return files.directory / writer.save(files, book, server.header(version), blocks(version), server.owner, 1.0).file


def test_a_version_is_shown_with_the_files_of_all_its_servers(store, job, look):
    paths = [save(store, job, 1, index, 4) for index in (0, 1)]
    code, lines = look("verify", job)
    assert code == 0
    assert lines[:2] == ["attempt 1:", "version 4: of all 2 servers"]
    assert [line.split()[0] for line in lines[2:4]] == [path.name for path in paths]
    assert lines[2].startswith(f"{paths[0].name}  server 0 of 2  1 blocks  data: pass 1, 0 tasks done, 0 begun  whole")
    assert lines[4:] == ["A resume would take version 4 of attempt 1, the newest that all 2 servers have whole."]


def test_the_newest_version_of_all_servers_is_what_a_resume_would_take(store, job, look):
    for index, version in ((0, 4), (1, 4), (0, 8)):
        save(store, job, 1, index, version)
    code, lines = look("ls", job)
    assert code == 0
    assert "version 8: incomplete, that of server 1 of 2 is missing or damaged" in lines
    assert lines[-1].startswith(
        "A resume would take version 4 of attempt 1, the newest that all 2 servers have whole, if"
    )


def test_a_damaged_file_is_named_and_the_version_before_is_taken(store, job, look):
    for version in (4, 8):
        paths = [save(store, job, 1, index, version) for index in (0, 1)]
    content = bytearray(paths[1].read_bytes())
    content[-30] ^= 1
    paths[1].write_bytes(content)
    assert look("ls", job)[0] == 0, "a listing reads no blocks"
    code, lines = look("verify", job)
    assert code == 1
    assert f"{paths[1].name}  cannot be used: block 0 of array 1 does not match its checksum. {REMEDY}" in lines
    assert lines[-2:] == [
        "A resume would take version 4 of attempt 1, the newest that all 2 servers have whole.",
        "It passes over what is damaged.",
    ]


def test_a_file_that_is_cut_off_inside_its_header_is_named(store, job, look):
    path = save(store, job, 1, 0, 4, shards=1)
    path.write_bytes(path.read_bytes()[:20])
    code, lines = look("ls", job)
    assert code == 1
    assert f"{path.name}  cannot be used: it is truncated after 20 bytes. {REMEDY}" in lines
    assert lines[-1] == "A resume would find no checkpoint: the parameters would start from their initial values."


def test_the_attempt_before_is_taken_where_the_last_has_nothing_whole(store, job, look):
    for index in (0, 1):
        save(store, job, 1, index, 4)
    save(store, job, 2, 0, 9)
    code, lines = look("verify", job)
    assert code == 0
    assert [line for line in lines if line.startswith("attempt")] == ["attempt 2:", "attempt 1:"]
    assert lines[-1] == "A resume would take version 4 of attempt 1, the newest that all 2 servers have whole."


def test_servers_of_an_asynchronous_job_go_on_each_from_its_newest(job, look):
    files = of_attempt(job, 1)
    for index, version in ((0, 4), (0, 8), (1, 5)):
        body = {**DECLARATION.to_json(), "mode": "async"}
        writer.write(files, Header("job", index, 2, 7, version, body, 2, 1), blocks(version), 1.0)
    assert look("verify", job)[1][-1] == (
        "A resume would take attempt 1 with server 0 at version 8, server 1 at version 5: each server goes on from its "
        "newest that is whole."
    )


def test_files_of_others_are_named_and_left_alone(store, job, look):
    save(store, job, 1, 0, 4, shards=1)
    (job / "1" / "notes.txt").write_text("mine")
    code, lines = look("verify", job)
    assert code == 0
    assert "notes.txt  is no checkpoint, and no resume looks at it. Keep it elsewhere." in lines


def test_the_directory_of_one_attempt_can_be_looked_at_alone(store, job, look):
    path = save(store, job, 1, 0, 4, shards=1)
    assert look("verify", path.parent)[1][0] == f"{path.parent}:"


def test_an_empty_directory_message_names_the_right_one(job, look):
    assert look("ls", job) == (
        1,
        [f"There are no checkpoints in {job}. Name the directory of a job, or of one of its attempts."],
    )


@pytest.mark.parametrize("name", ["missing", "file"])
def test_what_is_no_directory_is_wrong_usage(tmp_path, capsys, name):
    (tmp_path / "file").write_text("")
    with pytest.raises(SystemExit) as ended:
        main(["checkpoint", "ls", str(tmp_path / name)])
    assert ended.value.code == 2
    assert f"{tmp_path / name} cannot be read: " in capsys.readouterr().err


def test_the_report_matches_what_a_resume_does(store, job, look):
    """The same choice from the same files."""
    for version in (4, 8):
        paths = [save(store, job, 1, index, version) for index in (0, 1)]
    paths[0].write_bytes(paths[0].read_bytes()[:-5])
    files = LocalFiles(job / "1")
    found = reader.restore(files, reader.found(files), True, reader.no_blocks, lambda why: None)
    assert f"version {found[0].header.version} of attempt 1" in look("verify", job)[1][-2]
