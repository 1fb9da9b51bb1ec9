from __future__ import annotations

import pytest

from regatta import version
from regatta.errors import TooOld


@pytest.mark.parametrize(
    "headers",
    [{}, {version.OLDEST: version.VERSION, version.THEIRS: version.VERSION}, {version.OLDEST: "odd"}],
    ids=["a portal that reports no release", "the same release", "no release"],
)
def test_a_compatible_portal_is_used(headers: dict[str, str]) -> None:
    version.check(headers)


def test_a_command_that_is_too_old_names_the_release_that_is_needed() -> None:
    with pytest.raises(TooOld, match=r"needs 9\.1\.0 or newer.*pip install"):
        version.check({version.OLDEST: "9.1.0", version.THEIRS: "9.2.0"})


def test_a_portal_that_is_older_by_a_major_release_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(version, "VERSION", "2.0.0")
    with pytest.raises(TooOld, match=r"the portal is 1\.9\.0"):
        version.check({version.THEIRS: "1.9.0", version.OLDEST: "1.0.0"})


def test_releases_are_compared_as_numbers() -> None:
    version.check({version.OLDEST: "0.0.99"})
