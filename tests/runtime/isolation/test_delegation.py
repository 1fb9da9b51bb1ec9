"""The part of the cgroup tree that the portal may use: the decision, its sources, and the real kernel."""

from __future__ import annotations

import contextlib
import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from runtime.isolation import cgroup, delegation
from runtime.isolation.delegation import Home, Observed, decide
from runtime.messages import composition as composition_messages
from runtime.messages import isolation as messages
from tests import cgroup_tree, unprivileged
from tests.messages import mentions, pattern
from tests.waiting import until

PLACE = Path("/sys/fs/cgroup/portal.service")
BOTH = frozenset({"memory", "pids", "cpu"})
USERS = [0, unprivileged.UID] if os.geteuid() == 0 else []


@pytest.mark.parametrize(
    ("observed", "place", "move", "controllers", "missing"),
    [
        pytest.param(Observed(None), None, False, (), pattern(messages.CGROUP2_NOT_MOUNTED), id="cgroup v2 is missing"),
        pytest.param(Observed(PLACE), None, False, (), pattern(messages.CGROUP_UNUSABLE), id="not ours"),
        pytest.param(
            Observed(PLACE, writable=True, domain=False, available=BOTH),
            None,
            False,
            (),
            pattern(messages.CGROUP_UNUSABLE),
            id="threaded",
        ),
        pytest.param(
            Observed(PLACE, writable=True, inside=True, available=BOTH),
            *(PLACE, True, ("memory", "pids"), ""),
            id="ours alone, and we are in it",
        ),
        pytest.param(
            Observed(PLACE, writable=True, available=BOTH),
            *(PLACE, False, ("memory", "pids"), ""),
            id="ours alone, and we are in the leaf",
        ),
        pytest.param(
            Observed(PLACE, writable=True, inside=True, others=True, available=BOTH),
            *(PLACE, False, (), pattern(messages.CGROUP_HAS_OTHER_PROCESSES)),
            id="strangers are in it",
        ),
        pytest.param(
            Observed(PLACE, writable=True, top=True, inside=True, others=True, available=BOTH),
            *(PLACE, False, ("memory", "pids"), ""),
            id="the root of the machine's tree",
        ),
        pytest.param(
            Observed(PLACE, writable=True, inside=True, available=frozenset({"pids"})),
            *(PLACE, True, ("pids",), pattern(messages.CGROUP_CONTROLLERS_MISSING, what=messages.MEMORY())),
            id="one controller",
        ),
        pytest.param(
            Observed(PLACE, writable=True, inside=True, available=frozenset({"hugetlb"})),
            *(
                PLACE,
                False,
                (),
                pattern(
                    messages.CGROUP_CONTROLLERS_MISSING,
                    what=composition_messages.AND(first=messages.MEMORY(), last=messages.PROCESSES()),
                ),
            ),
            id="no controller that is wanted",
        ),
    ],
)
def test_the_plan_follows_from_the_observed_cgroup(
    observed: Observed, place: Path | None, move: bool, controllers: tuple[str, ...], missing: str
) -> None:
    plan = decide(observed)
    assert (plan.place, plan.move, plan.controllers) == (place, move, controllers)
    assert re.search(missing, "; ".join(plan.missing))
    assert bool(plan.missing) == bool(missing)


def test_the_layer_names_the_limits_that_the_kernel_sets() -> None:
    assert Home(PLACE).layer == "cgroup"
    assert Home(PLACE, frozenset({"memory", "pids"})).layer == messages.LAYER_CGROUP(
        limits=composition_messages.AND(first=messages.MEMORY(), last=messages.PROCESSES())
    )


def test_missing_controllers_are_named_with_a_remedy() -> None:
    (missing,) = decide(Observed(PLACE, writable=True, top=True)).missing
    for words in (str(PLACE), "memory and processes", "Delegate=yes", "systemd.unified_cgroup_hierarchy=1"):
        assert words in missing


class FilesForTheKernel:
    """Directories in place of /proc/self and of a mounted tree of cgroups."""

    def __init__(self, directory: Path, own: str, root: str = "/", kind: str = "cgroup2") -> None:
        self.proc, self.tree = directory / "proc", directory / "mounted here"
        self.proc.mkdir()
        place = str(self.tree).replace(" ", "\\040")
        (self.proc / "cgroup").write_text(f"4:memory:/elsewhere\n0::{own}\n")
        (self.proc / "mountinfo").write_text(
            "31 23 0:28 / /sys/fs/cgroup rw,relatime - tmpfs tmpfs rw\n"
            f"41 31 0:38 {root} {place} rw,relatime shared:9 - {kind} cgroup2 rw\n"
        )

    def cgroup(self, path: str, kind: str = "domain", procs: str = "") -> Path:
        place = self.tree / path
        place.mkdir(parents=True)
        contents = {"type": kind, "procs": procs, "subtree_control": "", "controllers": "memory pids"}
        for name, text in contents.items():
            (place / f"cgroup.{name}").write_text(text + "\n")
        return place

    def observe(self) -> Observed:
        return delegation.observe(self.proc)


def test_the_cgroup_is_found_where_the_tree_is_mounted(tmp_path: Path) -> None:
    kernel = FilesForTheKernel(tmp_path, "/system.slice/portal.service")
    place = kernel.cgroup("system.slice/portal.service", procs=str(os.getpid()))
    available = frozenset({"memory", "pids"})
    assert kernel.observe() == Observed(place, writable=True, inside=True, available=available)


def test_in_a_container_the_mounted_part_of_the_tree_is_taken_off(tmp_path: Path) -> None:
    kernel = FilesForTheKernel(tmp_path, "/docker/c1/app", root="/docker/c1")
    assert kernel.observe().path == kernel.tree / "app"


@pytest.mark.parametrize(
    ("own", "root", "kind"), [("/../other", "/", "cgroup2"), ("/a", "/b", "cgroup2"), ("/", "/", "cgroup")]
)
def test_a_cgroup_that_no_mount_shows_is_not_used(tmp_path: Path, own: str, root: str, kind: str) -> None:
    assert FilesForTheKernel(tmp_path, own, root, kind).observe() == Observed(None)


def test_a_portal_in_the_leaf_uses_the_cgroup_above(tmp_path: Path) -> None:
    kernel = FilesForTheKernel(tmp_path, "/portal.service/portal")
    place = kernel.cgroup("portal.service")
    kernel.cgroup("portal.service/portal", procs=str(os.getpid()))
    observed = kernel.observe()
    assert (observed.path, observed.inside, observed.others) == (place, False, False)


def test_foreign_processes_are_detected(tmp_path: Path) -> None:
    kernel = FilesForTheKernel(tmp_path, "/session")
    kernel.cgroup("session", procs=f"1\n{os.getpid()}")
    assert kernel.observe().others


# --- The real kernel -------------------------------------------------------------------------------------------------
# The machine may have none of the requested controllers for cgroups v2. The rules are the same for every one.
CONTROLLER = next(iter(sorted(cgroup_tree.OWN.available)), "")
PREPARES = f"""
import json, os, sys
from runtime.isolation import delegation
problem = delegation.prepare("home", ({CONTROLLER!r},))
found = delegation.find("home", ({CONTROLLER!r},))
own = next(line[3:].strip() for line in open("/proc/self/cgroup") if line.startswith("0::"))
limits = sorted(found.home.controllers) if found.home else None
print(json.dumps([problem, limits, list(found.missing), os.path.basename(own)]), flush=True)
"""


@pytest.fixture(params=USERS, ids=["root", "ordinary user"][: len(USERS)])
def user(request: pytest.FixtureRequest) -> int:
    uid: int = request.param
    return uid


@pytest.fixture
def base(user: int) -> Iterator[Path]:
    """Return a delegated cgroup that has the controller."""
    assert cgroup_tree.OWN.path is not None
    control = cgroup_tree.OWN.path / "cgroup.subtree_control"
    had = control.read_text().split()
    control.write_text(f"+{CONTROLLER}")
    with cgroup_tree.delegated(user) as path:
        yield path
    if CONTROLLER not in had:
        with contextlib.suppress(OSError):  # another test is still using it
            control.write_text(f"-{CONTROLLER}")


def prepared(base: Path, user: int, leaf: str = "") -> list[object]:
    """Return what a portal finds that the user starts in the cgroup."""
    command = [sys.executable, "-c", PREPARES]
    if user:
        command = [sys.executable, "-m", "tests.unprivileged", *command]
    environment = {**os.environ, "PYTHONPATH": str(unprivileged.PROJECT)}
    (base / leaf).mkdir(exist_ok=True)
    entrance = cgroup.entrance(base / leaf)
    try:
        done = subprocess.run(
            command, preexec_fn=lambda: cgroup.enter(entrance), env=environment, capture_output=True, check=False
        )
    finally:
        os.close(entrance)
    assert done.returncode == 0, done.stderr.decode()
    output: list[object] = json.loads(done.stdout)
    return output


@cgroup_tree.needed
@pytest.mark.processes
def test_the_portal_leaves_its_cgroup_for_a_leaf_so_that_limits_reach_replicas(base: Path, user: int) -> None:
    assert prepared(base, user) == ["", [CONTROLLER], [], "portal"]
    assert (base / "home" / "cgroup.subtree_control").read_text().split() == [CONTROLLER]


@cgroup_tree.needed
@pytest.mark.processes
def test_a_portal_that_was_started_in_the_leaf_stays_there(base: Path, user: int) -> None:
    assert prepared(base, user, "portal") == ["", [CONTROLLER], [], "portal"]


@cgroup_tree.needed
@pytest.mark.processes
def test_with_foreign_processes_in_its_cgroup_the_portal_stays_and_replicas_have_no_limits(
    base: Path, user: int
) -> None:
    entrance = cgroup.entrance(base)
    with subprocess.Popen(["/bin/sleep", "60"], preexec_fn=lambda: cgroup.enter(entrance)) as foreign:
        os.close(entrance)
        until("the stranger is inside", lambda: cgroup_tree.inside(base) == [foreign.pid])
        problem, limits, missing, own = prepared(base, user)
        assert (problem, limits, own) == ("", [], base.name)
        assert mentions(str(missing), messages.CGROUP_HAS_OTHER_PROCESSES)
        assert cgroup_tree.inside(base) == [foreign.pid]
        foreign.kill()


@cgroup_tree.needed
@pytest.mark.processes
def test_only_cgroups_without_a_replica_are_ended_at_the_start() -> None:
    with cgroup_tree.delegated() as base:
        kept, left = base / "attempt.trainer-0.1", base / "gone.trainer-0.1"
        for path in (kept, left):
            cgroup.make(path, 0, 0, ())
        entrances = [cgroup.entrance(path) for path in (kept, left)]
        processes = [
            subprocess.Popen(["/bin/sleep", "60"], preexec_fn=lambda entrance=entrance: cgroup.enter(entrance))
            for entrance in entrances
        ]
        for entrance in entrances:
            os.close(entrance)
        delegation.sweep(Home(base), {kept.name})
        assert processes[1].wait(60) == -9
        assert not left.exists()
        assert cgroup_tree.inside(kept) == [processes[0].pid]
        processes[0].kill()
        processes[0].wait()
