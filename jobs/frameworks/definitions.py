"""Table of the frameworks. Pure, and independent of the rest of the portal."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

NATIVE, PADDLE, TORCH, COMMAND, NOTEBOOK = "native", "paddle", "torch", "command", "notebook"


@dataclass(frozen=True)
class Framework:
    """Properties of one framework.

    * ``least_servers``, ``usual_servers``: the minimum and the default number of parameter servers;
      ``may_have_servers``: whether a job may have any.
    * ``servers_run_code``: parameter servers run the user's code.
    * ``servers_need_data``: without a dataset there are none unless the job requests them.
    * ``together``: the processes find one another once, when they start: none is replaced while the job runs, none may
      be missing, and their number stays.
    * ``packages``: the names of distributions, one of which its scripts import as ``module``; ``requirement``: the pip
      requirement to suggest for it. Empty: none is needed.
    * ``specified``: a specification may name it. Jobs of the others are submitted by the platform alone.
    """

    name: str
    least_servers: int
    usual_servers: int
    may_have_servers: bool = True
    together: bool = False
    servers_run_code: bool = False
    servers_need_data: bool = False
    packages: tuple[str, ...] = ()
    module: str = ""
    requirement: str = ""
    specified: bool = True


TABLE: Mapping[str, Framework] = {
    row.name: row
    for row in (
        Framework(NATIVE, least_servers=1, usual_servers=1),
        Framework(
            PADDLE,
            least_servers=0,
            usual_servers=0,
            together=True,
            servers_run_code=True,
            packages=("paddlepaddle", "paddlepaddle-gpu"),
            module="paddle",
            requirement="paddlepaddle==3.3.1 and setuptools",
        ),
        Framework(
            TORCH,
            least_servers=0,
            usual_servers=0,
            may_have_servers=False,
            together=True,
            packages=("torch",),
            module="torch",
            requirement="torch==2.13.0",
        ),
        Framework(COMMAND, least_servers=0, usual_servers=1, servers_need_data=True),
        # One process, which is not replaced within its attempt: its kernels could not be. The next attempt replaces it.
        Framework(NOTEBOOK, least_servers=0, usual_servers=0, may_have_servers=False, specified=False),
    )
}
# The names that a specification may use.
NAMES = tuple(name for name, row in TABLE.items() if row.specified)


def usual_servers(framework: Framework, *, has_dataset: bool) -> int:
    """Return the default number of parameter servers."""
    return 0 if framework.servers_need_data and not has_dataset else framework.usual_servers


def is_coordinated(framework: str, servers: int) -> bool:
    """Return whether the job has the platform's own master and parameter servers, which are optional for commands."""
    return not TABLE[framework].together and servers > 0


def meets_once(framework: str, servers: int) -> bool:
    """Return whether no process can be replaced while the job runs."""
    return not is_coordinated(framework, servers)
