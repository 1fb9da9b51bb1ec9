"""Table of the frameworks."""

from __future__ import annotations

import pytest

from jobs.frameworks.definitions import is_coordinated, meets_once
from jobs.frameworks.requirements_check import lacking
from jobs.messages import cluster as messages


@pytest.mark.parametrize(
    ("framework", "servers", "coordinated"),
    [("native", 1, True), ("command", 1, True), ("command", 0, False), ("paddle", 2, False), ("torch", 0, False)],
)
def test_coordinated_jobs_have_the_platforms_roles(framework: str, servers: int, coordinated: bool) -> None:
    assert is_coordinated(framework, servers) is coordinated
    assert meets_once(framework, servers) is not coordinated


@pytest.mark.parametrize(
    ("framework", "named", "here", "enough"),
    [
        ("native", (), False, True),
        ("command", ("numpy",), False, True),
        ("torch", ("torch",), False, True),
        ("torch", (), True, True),
        ("torch", (), False, False),
        # A job with requirements has an environment with nothing else.
        ("torch", ("numpy",), True, False),
        ("paddle", ("paddlepaddle-gpu",), False, True),
        ("paddle", (), False, False),
    ],
)
def test_a_job_has_to_require_its_framework(framework: str, named: tuple[str, ...], here: bool, enough: bool) -> None:
    assert (lacking(framework, named, has_module=here) == "") is enough


def test_a_missing_requirement_is_named_in_the_message() -> None:
    assert lacking("torch", (), has_module=False).endswith(messages.ADD_REQUIREMENT(requirement="torch==2.13.0"))
