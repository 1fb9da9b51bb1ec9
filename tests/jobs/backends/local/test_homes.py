"""Homes of notebooks on this machine: their user ids and owners."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from jobs.backends.home_store import HomeStore
from jobs.backends.local import homes, uids

RANGE = range(2_050_000_000, 2_050_000_010)


@pytest.fixture
def attempts(tmp_path: Path) -> Path:
    for name in ("a", "b", "c"):
        (tmp_path / "attempts" / name).mkdir(parents=True)
    return tmp_path / "attempts"


def home(attempts: Path, name: str = "7") -> Path:
    return attempts.parent / homes.DIRECTORY / name


def test_attempts_with_the_same_home_have_the_same_user_id(attempts: Path) -> None:
    first, second = (uids.of(attempts / name, RANGE, home(attempts)) for name in "ab")
    assert first == second


@pytest.mark.invariant("No other attempt gets the user id of a home.")
def test_the_user_id_of_a_home_is_not_given_to_others(attempts: Path) -> None:
    of_home = uids.of(attempts / "a", RANGE, home(attempts))
    (attempts / "a" / uids.UID_FILE).unlink()  # the attempt is gone
    others = set()
    for number in range(len(RANGE) - 1):
        other = attempts / f"other-{number}"
        other.mkdir()
        others.add(uids.of(other, RANGE))
    assert of_home not in others


def test_homes_of_two_namespaces_have_different_user_ids(attempts: Path) -> None:
    first = uids.of(attempts / "a", RANGE, home(attempts, "7"))
    assert uids.of(attempts / "b", RANGE, home(attempts, "8")) != first


def test_a_user_id_outside_of_a_changed_range_is_replaced(attempts: Path) -> None:
    uids.of(attempts / "a", RANGE, home(attempts))
    later = range(2_100_000_000, 2_100_000_010)
    assert uids.of(attempts / "b", later, home(attempts)) in later


def test_a_home_is_made_and_kept(attempts: Path) -> None:
    homes.prepare(home(attempts), None)
    (home(attempts) / "mine.txt").write_text("x")
    homes.prepare(home(attempts), None)
    assert (home(attempts) / "mine.txt").read_text() == "x"
    assert home(attempts).stat().st_mode & 0o777 == 0o700


@pytest.mark.skipif(os.geteuid() != 0, reason="only root gives files away")
def test_a_home_of_another_user_id_is_given_away_with_its_files_and_no_more(attempts: Path, tmp_path: Path) -> None:
    homes.prepare(home(attempts), None)
    (tmp_path / "outside").write_text("")
    (home(attempts) / "mine.txt").write_text("x")
    (home(attempts) / "link").symlink_to(tmp_path / "outside")
    homes.prepare(home(attempts), RANGE[0])
    assert (home(attempts) / "mine.txt").stat().st_uid == RANGE[0]
    assert (tmp_path / "outside").stat().st_uid == os.geteuid()


def test_sizes_are_those_of_the_homes_alone(attempts: Path) -> None:
    uids.of(attempts / "a", RANGE, home(attempts))
    homes.prepare(home(attempts), None)
    (home(attempts) / "mine.txt").write_text("12345")
    (home(attempts).parent / "lost+found").mkdir()
    assert HomeStore(home(attempts).parent).sizes() == {"7": 5}
