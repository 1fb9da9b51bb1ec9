"""Hostile programs, each isolated by the agent and, as a control, without isolation: there it must succeed.

``uid``: the agent is root and the program gets a user id of its own. ``user``: the agent is an ordinary user and the
program runs in a user namespace. Tests that run as an ordinary user have only the second case.
"""

from __future__ import annotations

import contextlib
import functools
import json
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from runtime import contract
from runtime.isolation import cgroup, landlock, syscalls
from runtime.messages import training as messages
from tests import cgroup_tree, unprivileged
from tests.messages import mentions
from tests.runtime.agent.conftest import Replica
from tests.runtime.agent.ingest_server import IngestServer
from tests.waiting import until

pytestmark = pytest.mark.processes

HOSTILE = Path(__file__).parent / "hostile"
JOB_UID = 2_000_000_007
MODES = ["uid", "user"] if os.geteuid() == 0 else ["user"]
MIB = 2**20


@dataclass
class Cell:
    """A portal's data directory with a secret, its agent's identity, and a replica in it."""

    mode: str
    data: Path
    portal: IngestServer
    victim: subprocess.Popen[bytes]
    served: str
    networked: bool = False  # replicas are on the attempt's own network
    group: Path | None = None  # cgroup of the replica; its agent is in the leaf next to it, as the portal's agents are

    @property
    def agent_uid(self) -> int:
        return unprivileged.UID if self.mode == "user" and os.geteuid() == 0 else os.geteuid()

    @property
    def job_uid(self) -> int:
        return JOB_UID if self.mode == "uid" else self.agent_uid

    @property
    def secret(self) -> Path:
        return self.data / "secret-key"

    def variables(self, **more: str) -> dict[str, str]:
        closed = "/etc/shadow" if self.agent_uid == 0 else "/etc/hostname"
        known = {"SECRET": str(self.secret), "VICTIM": str(self.victim.pid), "CLOSED": closed}
        return {**known, "SOCKET": str(self.data / "socket"), "ABSTRACT": self.served, **more}

    def run(
        self,
        name: str,
        timeout: float = 60.0,
        *,
        env: dict[str, str] | None = None,
        sandbox: str = contract.NAMESPACES,
        networked: bool = False,
        **limits: int,
    ) -> Outcome:
        """Run the program with isolation, to its end."""
        self.networked = networked
        replica = self.start((HOSTILE / f"{name}.py").read_text(), env=env, SANDBOX=sandbox, **limits)
        try:
            replica.wait(timeout)
            return Outcome("\n".join(self.portal.texts("stdout")), self.portal.last_report())
        finally:
            replica.end()

    def start(
        self, script: str, *, env: dict[str, str] | None = None, name: str = "trainer-0", **variables: Any
    ) -> Replica:
        """Start the script with isolation."""
        replica = Replica(self.data / "attempts" / "attempt" / name, self.portal)
        own_directories = [replica.directory / name for name in ("work", "output", "tmp")]
        for directory in own_directories:
            directory.mkdir(parents=True)
        (replica.directory / "work" / "sitecustomize.py").write_text(
            "import os\nopen('loaded', 'a').write(f'{os.getpid()} {os.getuid()}\\n')\n"
        )
        own(self.data, self.agent_uid)
        for directory in own_directories:
            own(directory, self.job_uid)
        if self.mode == "uid":
            variables["RUN_AS"] = JOB_UID
        if self.group is not None:
            variables["CGROUP"] = self.group
        replica.environment = {
            "PYTHONPATH": str(self.data / "python"),
            contract.USER_ENVIRONMENT: json.dumps({**self.variables(), **(env or {})}),
        }
        with as_user(self.agent_uid), self.in_leaf(), self.on_network(replica.directory.parent):
            return replica.start(script, **{"SANDBOX": "namespaces", **variables})

    def control(self, name: str, timeout: float = 60.0, **env: str) -> str:
        """Return the output of the program when it runs as the agent's user without isolation."""
        own(self.data, self.agent_uid)
        command = [sys.executable, "-B", str(HOSTILE / f"{name}.py")]
        if self.agent_uid != os.geteuid():
            command = [sys.executable, "-m", "tests.unprivileged", *command]
        own_directories = {"TMPDIR": str(self.data), contract.OUTPUT_DIR: str(self.data)}
        known = {"PATH": os.environ["PATH"], "PYTHONPATH": str(unprivileged.PROJECT)}
        with self.in_leaf():
            done = subprocess.run(
                command,
                env={**known, **own_directories, **self.variables(**env)},
                capture_output=True,
                timeout=timeout,
                check=False,
            )
        return done.stdout.decode() + done.stderr.decode()

    @contextlib.contextmanager
    def on_network(self, attempt: Path) -> Iterator[None]:
        """Start agents as the starter does for an attempt with its own network, if the cell has one."""
        if not self.networked:
            yield
            return
        popen, kind = subprocess.Popen, "root" if self.mode == "uid" else "user"

        def start(command: list[str], **options: Any) -> subprocess.Popen[bytes]:
            return popen([sys.executable, "-m", "tests.networked", str(attempt), kind, *command], **options)

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(subprocess, "Popen", start)
            yield

    @contextlib.contextmanager
    def in_leaf(self) -> Iterator[None]:
        """Start processes in the leaf of the delegated cgroup, if the cell has one."""
        if self.group is None:
            yield
            return
        entrance, popen = cgroup.entrance(self.group.parent / "portal"), subprocess.Popen
        with pytest.MonkeyPatch.context() as patch:
            enter = functools.partial(cgroup.enter, entrance)
            patch.setattr(subprocess, "Popen", functools.partial(popen, preexec_fn=enter))
            yield
        os.close(entrance)


@dataclass(frozen=True)
class Outcome:
    output: str
    report: dict[str, Any]


@contextlib.contextmanager
def as_user(uid: int) -> Iterator[None]:
    """Start replicas as that user."""
    if uid == os.geteuid():
        yield
        return
    popen = subprocess.Popen

    def start(command: list[str], **options: Any) -> subprocess.Popen[bytes]:
        options["env"] = {**options["env"]}
        return popen([sys.executable, "-m", "tests.unprivileged", *command], **options)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(subprocess, "Popen", start)
        yield


def own(directory: Path, uid: int) -> None:
    if os.geteuid() != 0:
        return
    os.chown(directory, uid, uid)
    for parent, directories, files in os.walk(directory):
        for name in (*directories, *files):
            os.chown(Path(parent, name), uid, uid, follow_symlinks=False)


@pytest.fixture(params=MODES)
def cell(request: pytest.FixtureRequest, portal: IngestServer) -> Iterator[Cell]:
    # Not in /tmp, where a job has a directory of its own.
    parent = Path("/srv") if os.geteuid() == 0 else unprivileged.PROJECT / "build"
    parent.mkdir(exist_ok=True)
    data = Path(tempfile.mkdtemp(prefix="regatta-cell-", dir=parent))
    (data / "python").mkdir()
    (data / "python" / "runtime").symlink_to(unprivileged.PROJECT / "runtime")
    (data / "secret-key").write_text("secret")
    (data / "secret-key").chmod(0o600)
    command = [sys.executable, "-I", "-S", "-c", "import time; time.sleep(600)"]
    if request.param == "user" and os.geteuid() == 0:
        command = [sys.executable, "-m", "tests.unprivileged", *command]
    victim = subprocess.Popen(command)
    name = f"regatta-test-{uuid.uuid4().hex}"
    with contextlib.ExitStack() as stack:
        for address in (str(data / "socket"), "\0" + name):
            stack.enter_context(answering(address))
        yield Cell(request.param, data, portal, victim, name)
    victim.kill()
    victim.wait()
    shutil.rmtree(data, ignore_errors=True)


@pytest.fixture
def grouped(cell: Cell) -> Iterator[Cell]:
    """Return the cell with a cgroup for its replica, in one that belongs to the agent's user."""
    with cgroup_tree.delegated(cell.agent_uid) as base:
        cell.group = base / "trainer"
        for path in (base / "portal", cell.group):
            path.mkdir()
            for own_file in (path, path / "cgroup.procs", path / "cgroup.kill"):
                os.chown(own_file, cell.agent_uid, cell.agent_uid)
        yield cell


@contextlib.contextmanager
def answering(address: str) -> Iterator[None]:
    """Run a server that trusts every peer."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listener:
        listener.bind(address)
        listener.listen()

        def serve() -> None:
            with contextlib.suppress(OSError):
                while True:
                    link, _ = listener.accept()
                    with link:
                        link.sendall(b"secret")

        threading.Thread(target=serve, daemon=True).start()
        yield
        listener.shutdown(socket.SHUT_RDWR)


@pytest.mark.invariant("On one machine, user code reaches no files, processes and servers but its own.")
@pytest.mark.parametrize("search_path", ["", "/:/root:{data}"])
def test_files_of_the_portal_and_of_the_machine_are_out_of_reach(cell: Cell, search_path: str) -> None:
    found = {"PYTHONPATH": search_path.format(data=cell.data)} if search_path else {}
    assert cell.run("files", env=found).output == "HELD"
    control = cell.control("files")
    assert all(attack in control for attack in (f"open {cell.secret}", "chmod", "utime", "write"))


@pytest.mark.skipif(not syscalls.landlock_version(), reason="the kernel has no Landlock")
def test_without_namespaces_only_files_that_libraries_read_are_readable_in_etc(cell: Cell) -> None:
    # A file of the machine that every user may read, like settings with the usual mode.
    env = {"SETTINGS": "/etc/hostname"}
    outcome = cell.run("configuration", env=env, sandbox="landlock")
    assert outcome.output.splitlines() == ["HELD", "libraries work"]
    assert not cell.portal.texts("stderr")
    control = cell.control("configuration", **env)
    assert all(path in control for path in (cell.variables()["CLOSED"], "/proc/self/root/etc/hostname", "list "))


@pytest.mark.invariant("On one machine, user code reaches no files, processes and servers but its own.")
def test_other_processes_are_out_of_reach(cell: Cell) -> None:
    assert cell.run("processes").output == "HELD"
    control = cell.control("processes")
    victim = cell.victim.pid
    assert all(f"{attack} {victim}" in control for attack in ("prlimit", "ptrace", "kill", "setpriority", "affinity"))


@pytest.mark.invariant("On one machine, user code reaches no files, processes and servers but its own.")
def test_servers_that_trust_a_user_id_are_out_of_reach(cell: Cell) -> None:
    output = cell.run("sockets").output
    assert str(cell.data) not in output
    if syscalls.landlock_version() >= landlock.SCOPES_SINCE:
        assert output == "HELD"
    assert cell.control("sockets").count("answers secret") == 2


def test_the_machine_is_out_of_reach_from_a_network_of_its_own(cell: Cell) -> None:
    env = {"PORT": cell.portal.url.rpartition(":")[2], "HOST": own_address()}
    outcome = cell.run("network", env=env, networked=True)
    assert outcome.output.splitlines() == ["HELD", "loopback works"]
    assert outcome.report["code"] == 0
    control = cell.control("network", **env)
    assert all(attack in control for attack in (f"127.0.0.1 {env['PORT']}", "abstract socket"))


def own_address() -> str:
    """Return an address of the machine other than its loopback device's, if it has one."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as link:
        try:
            link.connect(("192.0.2.1", 9))
        except OSError:
            return "127.0.0.3"
        return str(link.getsockname()[0])


def test_replicas_of_an_attempt_reach_each_other_on_its_network_also_after_a_restart(cell: Cell) -> None:
    """A parameter server runs outside the isolation, and trainers within."""
    cell.networked = True
    serve = """
    import os, socket
    with socket.create_server(("127.0.0.1", 0)) as server:
        print("port", server.getsockname()[1], flush=True)
        while True:
            server.accept()[0].sendall(os.environ["ANSWER"].encode())
    """
    visit = """
    import os, socket
    answer = socket.create_connection(("127.0.0.1", int(os.environ["PORT"])), 10).recv(99).decode()
    assert answer == os.environ["ANSWER"]
    """
    env = {"ANSWER": uuid.uuid4().hex}
    server = cell.start(serve, name="pserver-0", env=env, ROLE="pserver", REPLICA="pserver-0", SANDBOX="none")
    try:
        until("it listens", lambda: any(text.startswith("port ") for text in cell.portal.texts()))
        (port,) = (text.split()[1] for text in cell.portal.texts() if text.startswith("port "))
        assert answer_of(int(port)) != env["ANSWER"].encode()
        for start_number in range(2):
            trainer = cell.start(visit, name=f"trainer-{start_number}", env={**env, "PORT": port})
            trainer.wait(30)
            trainer.end()
            assert trainer.state is not None
            assert trainer.state.code == 0
    finally:
        server.end()


def answer_of(port: int) -> bytes:
    """Return the first bytes of the server at this port of the machine, or nothing without a server.

    Other programs of the machine may have chosen the same number.
    """
    try:
        with socket.create_connection(("127.0.0.1", port), 2) as link:
            return link.recv(99)
    except OSError:
        return b""


def test_a_replica_whose_network_others_cannot_join_is_ended(cell: Cell) -> None:
    cell.networked = True
    replica = cell.start("import time; print('ready', flush=True); time.sleep(300)")
    try:
        cell.portal.wait_until(lambda: "ready" in cell.portal.texts(), 30)
        (keeper,) = keepers(replica.directory.parent)
        os.kill(keeper, 9)
        replica.wait(30)
        assert cell.portal.last_report()["code"] == contract.EXIT_RESTART
        assert mentions(cell.portal.last_report()["why"], messages.NETWORK_PROCESS_ENDED)
    finally:
        replica.end()


def test_the_process_that_keeps_a_network_ends_after_the_last_agent(cell: Cell) -> None:
    cell.networked = True
    replica = cell.start("import time; print('ready', flush=True); time.sleep(300)")
    cell.portal.wait_until(lambda: "ready" in cell.portal.texts(), 30)
    assert len(keepers(replica.directory.parent)) == 1
    replica.end()
    until("it ends too", lambda: not keepers(replica.directory.parent), 10)


def keepers(attempt: Path) -> list[int]:
    return [pid for pid in processes_named(str(attempt)) if b"isolation.network" in command_of(pid)]


def command_of(pid: int) -> bytes:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return b""


def test_an_agent_without_the_network_of_its_attempt_starts_nothing(replica: Replica) -> None:
    replica.start("print('ran', flush=True)", NETWORK="user")
    assert replica.wait() == contract.EXIT_ERROR
    assert "REGATTA_NETWORK_FDS" in replica.complaint()
    assert replica.portal.texts() == []


def test_calls_that_no_training_needs_are_refused_by_the_filter(cell: Cell) -> None:
    assert cell.run("kernel").output == "HELD"
    assert "REACHED" in cell.control("kernel")


def test_keys_of_the_kernel_are_not_listed(cell: Cell) -> None:
    name = f"regatta-{uuid.uuid4().hex}"
    control = cell.control("keys", NAME=name)
    assert name in control
    assert cell.run("keys", env={"NAME": name}).output == "HELD"


def test_an_agent_cannot_be_blinded(cell: Cell) -> None:
    report = cell.run("blind", LIMIT_MEMORY=250 * MIB).report
    assert report["out_of_memory"]
    assert report["why"].startswith("out of memory: used ")


@pytest.mark.invariant("An agent that cannot measure its process ends it.")
def test_an_agent_that_cannot_measure_ends_its_process(cell: Cell) -> None:
    """The control of the test above: without isolation the agent is blinded, and must not continue as if nothing was
    used."""
    script, go = (HOSTILE / "blind.py").read_text(), cell.data / "go"
    replica = cell.start(script, env={"GO": str(go)}, SANDBOX="none", LIMIT_MEMORY=250 * MIB)
    try:
        until("the agent sends what the program prints", lambda: "started" in cell.portal.texts("stdout"))
        go.touch()
        assert replica.wait(60) != 0
        assert "Unmeasurable: /proc/" in replica.complaint()
        assert not processes_named(str(replica.directory / "work"))
    finally:
        replica.end()


@pytest.mark.parametrize("kind", ["shm", "memfd"])
def test_memory_that_no_process_has_mapped_counts(cell: Cell, kind: str) -> None:
    name = f"regatta-{uuid.uuid4().hex}"
    outcome = cell.run("memory", env={"KIND": kind, "NAME": name}, LIMIT_MEMORY=200 * MIB)
    assert "REACHED" not in outcome.output
    assert outcome.report["why"].startswith("out of memory: used "), outcome
    assert not Path("/dev/shm", name).exists()
    if kind == "shm":
        assert "REACHED" in cell.control("memory", KIND=kind, NAME=name)
        Path("/dev/shm", name).unlink()


@pytest.mark.parametrize("kind", ["files", "removed", "names"])
def test_the_disk_has_a_limit(cell: Cell, kind: str) -> None:
    outcome = cell.run("disk", env={"KIND": kind}, LIMIT_DISK=30 * MIB)
    assert "REACHED" not in outcome.output
    assert outcome.report["code"] == contract.EXIT_ERROR
    assert " of 30 MiB of disk; write less" in outcome.report["why"]


def test_a_program_within_the_disk_limit_continues(cell: Cell) -> None:
    assert "REACHED" in cell.run("disk", env={"KIND": "files"}, LIMIT_DISK=200 * MIB).output


def test_a_daemon_ends_with_its_job(cell: Cell) -> None:
    name = f"daemon-{uuid.uuid4().hex}"
    assert cell.run("daemon", env={"NAME": name}).output == "left"
    assert not processes_named(name)
    assert "left" in cell.control("daemon", NAME=name)
    left = processes_named(name)
    for pid in left:
        os.kill(pid, 9)
    assert left


def processes_named(name: str) -> list[int]:
    found = []
    for entry in Path("/proc").iterdir():
        with contextlib.suppress(OSError):
            if entry.name.isdigit() and name.encode() in (entry / "cmdline").read_bytes():
                found.append(int(entry.name))
    return found


def test_a_fork_bomb_is_ended_and_leaves_nothing(cell: Cell) -> None:
    outcome = cell.run("bomb", LIMIT_PROCESSES=40)
    assert outcome.report["why"] == "started more than 40 processes and threads"
    if cell.mode == "uid":
        assert not [entry for entry in Path("/proc").iterdir() if entry.name.isdigit() and owner(entry) == JOB_UID]


def owner(entry: Path) -> int:
    try:
        return entry.stat().st_uid
    except OSError:
        return -1


def test_loader_variables_reach_the_program_alone(cell: Cell) -> None:
    work = cell.data / "attempts" / "attempt" / "trainer-0" / "work"
    hostile = {"PYTHONPATH": str(work), "PYTHONSTARTUP": str(work / "x"), "LD_PRELOAD": "/nowhere/evil.so"}
    outcome = cell.run("variables", env={**hostile, "GCONV_PATH": str(work), "LD_AUDIT": "/nowhere/audit.so"})
    assert outcome.output.strip() == f"2 {cell.job_uid}"
    complaints = [line for line in cell.portal.texts("stderr") if "evil.so" in line]
    assert len(complaints) == 1


def test_a_python_home_of_the_job_breaks_the_job_alone(cell: Cell) -> None:
    outcome = cell.run("variables", env={"PYTHONHOME": "/nowhere"})
    assert outcome.report["code"] == 1


def test_asked_to_stop_the_program_gets_the_signal_and_its_grace(cell: Cell) -> None:
    script = """
    import signal, sys, time
    signal.signal(signal.SIGTERM, lambda *_: (print("asked", flush=True), sys.exit(7)))
    print("ready", flush=True)
    time.sleep(60)
    """
    replica = cell.start(script)
    try:
        cell.portal.wait_until(lambda: "ready" in cell.portal.texts(), 30)
        replica.ask_to_stop()
        replica.wait(30)
        assert cell.portal.texts("stdout") == ["ready", "asked"]
        assert cell.portal.last_report()["code"] == 7
    finally:
        replica.end()


@pytest.mark.parametrize(
    ("script", "facts"),
    [
        ("import os, signal; os.kill(os.getpid(), signal.SIGSEGV)", {"code": None, "signal": 11}),
        ("raise SystemExit(3)", {"code": 3, "signal": None}),
    ],
)
def test_an_end_is_reported_as_the_program_ended(cell: Cell, script: str, facts: dict[str, object]) -> None:
    replica = cell.start(script)
    try:
        replica.wait(30)
        report = cell.portal.last_report()
        assert {name: report[name] for name in facts} == facts
    finally:
        replica.end()


def test_when_the_agent_is_killed_everything_inside_goes_with_it(cell: Cell) -> None:
    name = f"endless-{uuid.uuid4().hex}"
    replica = cell.start(
        f"""
        import subprocess, sys
        subprocess.run([sys.executable, "-c", "import time; print('ready', flush=True); time.sleep(300)", "{name}"])
        """
    )
    cell.portal.wait_until(lambda: "ready" in cell.portal.texts(), 30)
    replica.end()
    until("nothing is left", lambda: all(is_zombie(pid) for pid in processes_named(name)), 10)


def is_zombie(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()[0] == b"Z"
    except OSError:
        return True


@cgroup_tree.needed
def test_a_program_cannot_leave_its_cgroup_nor_see_where_it_is(grouped: Cell) -> None:
    assert grouped.group is not None
    leaf = str(grouped.group.parent / "portal")
    assert grouped.run("cgroup", env={"GROUP": leaf}).output == "HELD"
    control = grouped.control("cgroup", GROUP=leaf)
    assert "REACHED" in control
    assert leaf in control


@cgroup_tree.needed
def test_a_program_and_all_it_starts_is_in_its_cgroup_which_goes_with_it(grouped: Cell) -> None:
    name, group = f"daemon-{uuid.uuid4().hex}", grouped.group
    assert group is not None
    replica = grouped.start(
        f"""
        import subprocess, sys, time
        subprocess.Popen([sys.executable, "-c", "import time; time.sleep(300)", "{name}"], start_new_session=True)
        print("ready", flush=True)
        time.sleep(300)
        """
    )
    try:
        grouped.portal.wait_until(lambda: "ready" in grouped.portal.texts(), 30)
        assert replica.process is not None
        inside = cgroup_tree.inside(group)
        # The launcher, the first process of the namespace, the program, and the daemon, but not the agent.
        assert len(inside) == 4
        assert set(processes_named(name)) < set(inside)
        assert replica.process.pid not in inside
        replica.ask_to_stop()
        replica.wait(30)
        assert not group.exists()
    finally:
        replica.end()


def test_a_program_whose_cgroup_cannot_be_entered_does_not_start(replica: Replica, tmp_path: Path) -> None:
    report = replica.run("print('ran', flush=True)", CGROUP=tmp_path / "nowhere")
    assert report["code"] == contract.EXIT_ERROR
    assert report["why"].startswith("could not be started: ")
    assert replica.portal.texts("stdout") == []


@pytest.mark.parametrize(
    ("kills", "why"), [(1, "out of memory: reached its limit of 64 MiB"), (0, "was terminated by signal 9 (SIGKILL)")]
)
def test_a_process_killed_by_the_kernel_for_memory_has_that_reason(
    replica: Replica, tmp_path: Path, kills: int, why: str
) -> None:
    """In a directory in place of a cgroup whose limit was reached."""
    for name, text in {"procs": "", "kill": ""}.items():
        (tmp_path / f"cgroup.{name}").write_text(text)
    (tmp_path / "memory.events").write_text(f"max 9\noom 1\noom_kill {kills}\n")
    script = "import os; os.kill(os.getpid(), 9)"
    report = replica.run(script, CGROUP=tmp_path, LIMIT_MEMORY=64 * MIB, SANDBOX="none")
    assert (report["why"], report["out_of_memory"]) == (why, bool(kills))
