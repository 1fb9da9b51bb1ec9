"""Files that a job sees, as data: the view that the launcher gets."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from runtime.isolation import view
from runtime.isolation.launch_request import DEVICE, GIVE, READ, WRITE

UID = 2_000_000_011


@pytest.fixture
def places(tmp_path: Path) -> dict[str, Path]:
    found = {name: tmp_path / name for name in ("work", "temporary", "data", "secret")}
    for path in found.values():
        path.mkdir()
    return found


def built(places: dict[str, Path], *given: Path) -> view.View:
    work, temporary = str(places["work"]), str(places["temporary"])
    return view.build(UID, UID, map(str, given), [work], work, temporary)


def uses(shown: view.View) -> dict[str, str]:
    return {tree.target: tree.use for tree in shown.trees}


def test_only_granted_trees_are_readable_and_own_ones_writable(places: dict[str, Path]) -> None:
    found = uses(built(places, places["data"]))
    assert found[str(places["data"])] == GIVE
    assert found[str(places["work"])] == WRITE
    assert {path for path, use in found.items() if use == WRITE} == (
        {str(places["work"]), str(places["temporary"]), "/tmp", "/var/tmp"}
    )
    assert not any(Path(path).is_relative_to(places["secret"]) for path in found)


def test_the_temporary_directory_of_the_replica_is_shown_as_tmp(places: dict[str, Path]) -> None:
    sources = {tree.target: tree.source for tree in built(places).trees}
    assert sources["/tmp"] == sources["/var/tmp"] == str(places["temporary"])


def test_a_device_file_that_is_granted_is_shown_as_a_device(places: dict[str, Path]) -> None:
    work, temporary = str(places["work"]), str(places["temporary"])
    shown = view.build(UID, UID, [], [work], work, temporary, ["/dev/tty", "/dev/of-no-machine"])
    assert uses(shown)["/dev/tty"] == DEVICE
    assert "/dev/of-no-machine" not in uses(shown)


@pytest.mark.parametrize("path", ["/", "/run", "/home", "/root", "/etc", "/proc", "/sys", "/dev", "/var", "/srv"])
def test_directories_of_the_machine_are_not_shown_as_a_whole(places: dict[str, Path], path: str) -> None:
    shown = built(places)
    assert path not in uses(shown)
    assert path not in [tree.source for tree in shown.trees]


def test_of_etc_no_secret_is_shown(places: dict[str, Path]) -> None:
    below_etc = {path for path in uses(built(places)) if path.startswith("/etc/")}
    assert not {"/etc/shadow", "/etc/passwd", "/etc/group", "/etc/regatta", "/etc/ssl", "/etc/ssl/private"} & below_etc


def test_the_system_is_read_only_and_devices_are_the_harmless_ones(places: dict[str, Path]) -> None:
    found = uses(built(places))
    assert found["/usr"] == READ
    devices = {path for path, use in found.items() if use == DEVICE}
    assert devices <= {"/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom"}
    assert "/dev/null" in devices


def test_a_given_link_is_a_link_to_the_tree_that_is_shown(
    places: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Nothing is created inside a tree of the view, and the links of this test are below /tmp.
    monkeypatch.setattr(view, "TEMPORARY", "/temporary")
    link = tmp_path / "link"
    link.symlink_to(places["data"])
    shown = built(places, link)
    assert uses(shown)[str(places["data"])] == GIVE
    assert (str(link), str(places["data"])) in shown.links


def test_missing_sources_are_left_out(places: dict[str, Path], tmp_path: Path) -> None:
    assert str(tmp_path / "absent") not in uses(built(places, tmp_path / "absent"))


def test_parents_are_mounted_before_their_children(places: dict[str, Path]) -> None:
    inner = places["data"] / "inner"
    inner.mkdir()
    order = [tree.target for tree in built(places, inner, places["data"]).trees]
    assert order.index(str(places["data"])) < order.index(str(inner))


def test_accounts_of_the_machine_have_no_names(places: dict[str, Path]) -> None:
    files = dict(built(places).files)
    names = {line.split(":")[0]: line.split(":")[2] for line in files["/etc/passwd"].splitlines()}
    assert names == {"root": "0", "job": str(UID), "nobody": "65534"}
    assert set(files) == {"/etc/passwd", "/etc/group"}


def test_a_data_directory_that_every_job_would_see_is_noticed(tmp_path: Path) -> None:
    assert view.exposed("/usr/local/regatta") == "/usr"
    assert view.exposed(str(tmp_path)) is None or os.path.realpath(tmp_path).startswith("/usr")
