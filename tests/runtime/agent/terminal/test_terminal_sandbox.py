"""A terminal can do nothing that the replica's own process cannot do: with namespaces, in both of their modes."""

from __future__ import annotations

import json

import pytest

from runtime import contract
from runtime.agent.terminal.session import IDLE_SECONDS
from runtime.control import identity
from tests.runtime.agent.callers import KEY, Caller
from tests.runtime.agent.cells import HOSTILE, Cell
from tests.runtime.agent.conftest import Replica
from tests.waiting import until

pytestmark = pytest.mark.processes
# The replica's own process: it shows its identity, then it waits.
SHOWN = ("ns/mnt", "ns/pid", "ns/ipc", "ns/net", "ns/user")
SHOW = f"""
import json, os
status = dict(line.split(":", 1) for line in open("/proc/self/status").read().splitlines())
names = ("Uid", "Gid", "Groups", "CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb", "NoNewPrivs", "Seccomp")
limits = open("/proc/self/limits").read()
environment = {{name for name in os.environ if name not in ("REGATTA_AGENT_FD", "PWD", "OLDPWD", "SHLVL", "_")}}
print(json.dumps([
    {{name: status[name].split() for name in names}}, limits, sorted(environment), sorted(os.listdir("/")),
    [os.readlink(f"/proc/self/{{name}}") for name in {SHOWN!r}], os.getcwd(),
]), flush=True)
"""


def started(cell: Cell) -> Replica:
    replica = cell.start(SHOW + "import time\ntime.sleep(600)", CONTROL_KEY=KEY)
    until("it runs", lambda: (replica.directory / identity.SOCKET_FILE).exists() and cell.portal.texts("stdout"))
    return replica


def ran(replica: Replica, *command: str) -> str:
    out, err, code = Caller(replica.directory, call="exec", command=list(command)).streams()
    assert code == 0, err
    return out


@pytest.mark.invariant("A terminal has the identity, the rights, the limits and the view of the replica's process.")
def test_a_command_has_the_rights_limits_and_view_of_the_replica(cell: Cell) -> None:
    replica = started(cell)
    try:
        (own,) = (json.loads(text) for text in cell.portal.texts("stdout"))
        (python,) = {json.loads(ran(replica, "python3", "-c", "import json,sys; print(json.dumps(sys.executable))"))}
        assert json.loads(ran(replica, python, "-c", SHOW)) == own
        assert KEY not in ran(replica, "sh", "-c", "cat /proc/*/environ 2>/dev/null; env; true")
        assert "secret-token" not in ran(replica, "sh", "-c", "cat /proc/*/environ 2>/dev/null; env; true")
    finally:
        replica.end()


@pytest.mark.invariant("A terminal reaches no files, processes and servers but those of the replica.")
@pytest.mark.parametrize("name", ["files", "processes", "kernel"])
def test_hostile_programs_reach_nothing_from_a_terminal(cell: Cell, name: str) -> None:
    replica = started(cell)
    try:
        program = (HOSTILE / f"{name}.py").read_text()
        assert "REACHED" not in ran(replica, "python3", "-c", program)
    finally:
        replica.end()


def test_the_shell_counts_for_the_limits_of_the_replica(cell: Cell) -> None:
    replica = cell.start("import time\nprint('up', flush=True)\ntime.sleep(600)", CONTROL_KEY=KEY, LIMIT_PROCESSES=30)
    until("it runs", lambda: (replica.directory / identity.SOCKET_FILE).exists() and cell.portal.texts("stdout"))
    try:
        caller = Caller(
            replica.directory, call="exec", command=["sh", "-c", "for n in $(seq 40); do sleep 99 & done; wait"]
        )
        replica.wait()
        caller.leave()
        assert cell.portal.last_report()["code"] != contract.EXIT_OK
        assert "30" in cell.portal.last_report()["why"]
    finally:
        replica.end()


def test_the_time_without_viewers_is_the_documented_one() -> None:
    assert IDLE_SECONDS == 15 * 60
