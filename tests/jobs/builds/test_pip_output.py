"""Messages of failed installations, from the output of several releases of pip."""

from __future__ import annotations

import pytest

from jobs.builds.pip_output import explained
from jobs.messages import cluster as messages

RETRY = (
    "WARNING: Retrying (Retry(total={left}, connect=None, read=None, redirect=None, status=None)) after connection "
    "broken by "
)
NO_HOST = (
    f"{RETRY}'NewConnectionError('<pip._vendor.urllib3.connection.HTTPSConnection object at 0x7f2695991450>: Failed to "
    "establish a new connection: [Errno 111] Connection refused')': /simple/tiny/"
)
WITH_HOST = (
    f"{RETRY}'NewConnectionError(\"HTTPSConnection(host='packages.example', port=443): Failed to establish a new "
    "connection: [Errno -2] Name or service not known\")': /simple/tiny/"
)
SLOW = (
    f"{RETRY}'ConnectTimeoutError(<pip._vendor.urllib3.connection.HTTPSConnection object at 0x7f3b421e7890>, "
    "'Connection to packages.example timed out. (connect timeout=15)')': /simple/tiny/"
)
LOOKING = "Looking in indexes: https://user:****@packages.example/simple"
NOTHING = [
    "ERROR: Could not find a version that satisfies the requirement Tiny==2.0 (from versions: none)",
    "ERROR: No matching distribution found for Tiny==2.0",
]
NO_FILE = (
    "ERROR: Could not install packages due to an OSError: HTTPSConnectionPool(host='files.example', port=443): "
    "Max retries exceeded with url: /tiny-2.0.whl (Caused by NewConnectionError('[Errno 111] Connection refused'))"
)


def tries(error: str) -> list[str]:
    return [error.replace("{left}", str(left)) for left in (4, 3, 2, 1, 0)]


def failed(lines: list[str]) -> str:
    """Return the message of the installer, which ends with pip's last lines."""
    return messages.REQUIREMENTS_NOT_INSTALLED(error=" / ".join(lines[-5:]))


@pytest.mark.parametrize(
    ("lines", "host"),
    [
        ([LOOKING, *tries(NO_HOST), *NOTHING], "packages.example"),
        ([*tries(WITH_HOST), *NOTHING], "packages.example"),
        ([*tries(SLOW), *NOTHING], "packages.example"),
        ([*tries(NO_HOST), *NOTHING], messages.PACKAGE_INDEX()),
        (["Collecting tiny", NO_FILE], "files.example"),
    ],
    ids=["host of the index", "host of the error", "timeout", "default index", "file"],
)
def test_an_index_that_does_not_answer_is_one_message_with_its_host(lines: list[str], host: str) -> None:
    assert explained(failed(lines), lines) == messages.PACKAGE_INDEX_UNREACHABLE(host=host)


@pytest.mark.parametrize(
    "lines",
    [
        NOTHING,
        [*tries(NO_HOST.replace("/tiny/", "/other/")), *NOTHING],
        [*tries(NO_HOST), "ERROR: Could not install packages due to an OSError: [Errno 28] No space left on device"],
    ],
    ids=["no such package", "another package, found later", "another cause"],
)
def test_another_failure_keeps_pips_last_lines(lines: list[str]) -> None:
    assert explained(failed(lines), lines) == failed(lines)


def test_another_problem_of_the_build_stays() -> None:
    problem = messages.REQUIREMENTS_TOO_LARGE(size="8")
    assert explained(problem, [*tries(NO_HOST), *NOTHING]) == problem
