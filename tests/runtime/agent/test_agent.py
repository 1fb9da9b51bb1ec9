"""Whole agents with whole processes against a real ingest."""

from __future__ import annotations

import errno
import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from runtime import contract, coordination
from runtime.isolation import syscalls
from runtime.messages import training as messages
from tests.messages import mentions
from tests.runtime.agent.conftest import Replica
from tests.runtime.agent.ingest_server import IngestServer
from tests.servers.etcd_server import EtcdServer
from tests.waiting import until

pytestmark = pytest.mark.processes

JOINED = """
    import os, sys, time
    from runtime.agent_channel import Channel
    channel = Channel.from_environment()
    channel.hello()
    members = channel.wait_for_members(bool, 10)
"""
ENDLESS = "import time\nprint('up', flush=True)\ntime.sleep(600)"


def is_running(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


# --- Output ----------------------------------------------------------------------------------------------------------
def test_output_arrives_line_by_line_and_the_end_is_reported(replica: Replica, portal: IngestServer) -> None:
    report = replica.run("import sys\nprint('one')\nprint('two')\nprint('three', file=sys.stderr)")
    assert (portal.texts("stdout"), portal.texts("stderr")) == (["one", "two"], ["three"])
    assert report == {
        "replica": "trainer-0", "start_number": 1, "phase": "exited",
        "code": 0, "signal": None, "out_of_memory": False, "why": "",
    }  # fmt: skip


def test_a_hundred_thousand_lines_arrive_complete_and_in_order(replica: Replica, portal: IngestServer) -> None:
    replica.run("for i in range(100_000): print('line', i)", LOG_CAP=2**30)
    assert portal.texts("stdout") == [f"line {i}" for i in range(100_000)]


def test_beyond_the_cap_lines_are_counted_and_kept_lines_are_complete(replica: Replica, portal: IngestServer) -> None:
    replica.run("for i in range(1000): print(f'{i:09d}')", LOG_CAP=1000)
    assert portal.texts("stdout") == [f"{i:09d}" for i in range(100)]
    assert portal.texts("agent") == [
        "log cap of 0.0009537 MiB reached; the rest is not kept",
        "900 lines beyond the log cap of 0.0009537 MiB were not kept",
    ]


def test_bytes_that_are_no_utf8_and_a_huge_line_are_shown_as_far_as_they_can(
    replica: Replica, portal: IngestServer
) -> None:
    replica.run(
        """
        import sys
        sys.stdout.buffer.write(b"caf\\xe9 \\xff\\n")
        sys.stdout.buffer.write(b"x" * 10_000_000 + b"\\n")
        sys.stdout.buffer.write(b"last, without a line break")
        """
    )
    first, huge, last = portal.texts("stdout")
    assert first == "caf\\xe9 \\xff"
    assert huge == "x" * contract.LINE_LIMIT + " … [cut: this line had 10,000,000 bytes]"
    assert last == "last, without a line break"


# --- Delivery --------------------------------------------------------------------------------------------------------
def test_lost_answers_errors_and_gaps_double_nothing_and_lose_nothing(replica: Replica, portal: IngestServer) -> None:
    replica.start(
        """
        import time
        for i in range(3000):
            print(i)
            if i % 100 == 0: time.sleep(0.02)
        """
    )
    for trouble in ("drop_replies", "fail", "forget"):
        there = len(portal.taken["logs"])
        portal.wait_until(lambda there=there: len(portal.taken["logs"]) > there)
        setattr(portal, trouble, 1)
    replica.wait()
    assert portal.texts("stdout") == [str(i) for i in range(3000)]


def test_a_portal_that_was_away_gets_everything_when_it_comes_back(replica: Replica, portal: IngestServer) -> None:
    replica.start("import time\nfor i in range(200): print(i); time.sleep(0.002)")
    portal.wait_until(lambda: bool(portal.taken["logs"]))
    portal.go_away()
    until("it has exited", lambda: replica.state is not None and replica.state.phase == "exited")
    assert replica.state is not None
    assert not replica.state.delivered
    portal.come_back()
    assert replica.wait() == 0
    assert portal.texts("stdout") == [str(i) for i in range(200)]
    assert replica.state.delivered
    assert portal.last_report()["phase"] == "exited"


def test_an_agent_of_a_replaced_attempt_ends_its_process(replica: Replica, portal: IngestServer) -> None:
    replica.start(ENDLESS)
    portal.wait_until(lambda: "up" in portal.texts())
    portal.stale = True
    replica.wait()
    assert replica.state is not None
    assert replica.state.why == messages.ATTEMPT_OVER(why="a newer attempt runs")


@pytest.mark.invariant(
    "A proxy's answer ends no process, loses no log line and never counts as an answer of the portal."
)
@pytest.mark.parametrize(
    "answer",
    [(404, "<html>default backend</html>"), (409, "<html>conflict</html>"), (200, "<html>sign in</html>"), (403, "")],
    ids=["404", "409", "a page", "403"],
)
def test_a_proxy_in_front_of_the_portal_ends_no_process_and_loses_nothing(
    replica: Replica, portal: IngestServer, answer: tuple[int, str]
) -> None:
    replica.start("import time\nfor i in range(150): print(i); time.sleep(0.01)")
    portal.wait_until(lambda: bool(portal.taken["logs"]))
    portal.proxy = answer
    portal.wait_until(lambda: portal.proxied >= 3)
    portal.proxy = None
    assert replica.wait() == 0
    assert portal.texts("stdout") == [str(i) for i in range(150)]
    assert portal.last_report()["code"] == 0


def test_a_brief_404_for_the_attempt_ends_no_process(replica: Replica, portal: IngestServer) -> None:
    replica.start("import time\nfor i in range(150): print(i); time.sleep(0.01)")
    portal.wait_until(lambda: bool(portal.taken["logs"]))
    portal.missing = True
    until("it has been said", lambda: replica.state is not None and replica.state.phase == "exited")
    portal.missing = False
    assert replica.wait() == 0
    assert portal.texts("stdout") == [str(i) for i in range(150)]


def test_points_and_events_of_the_process_are_numbered_and_sent(replica: Replica, portal: IngestServer) -> None:
    replica.run(
        JOINED
        + """
    channel.metrics([(1.0, 1, "cost", 0.5), (2.0, 2, "cost", float("nan"))])
    channel.event("note", "half way")
    """
    )
    assert portal.taken["metrics"] == [[1.0, 1, "cost", 0.5], [2.0, 2, "cost", "NaN"]]
    assert [event[1:] for event in portal.taken["events"]] == [["note", "half way"]]


def test_invalid_messages_over_the_link_are_reported_once_and_harmless(replica: Replica, portal: IngestServer) -> None:
    report = replica.run(
        """
        import os
        for message in (b"}{", b'{"op": "metrics", "points": [[1]]}', b"[]", b'{"op": "dance"}'):
            os.write(int(os.environ["REGATTA_AGENT_FD"]), message + b"\\n")
        """
    )
    assert len([text for text in portal.texts("agent") if "not understood" in text]) == 1
    assert report["code"] == 0


# --- Artifacts -------------------------------------------------------------------------------------------------------
def test_files_of_the_output_directory_become_artifacts_and_links_do_not(
    replica: Replica, portal: IngestServer, tmp_path: Path
) -> None:
    (tmp_path / "secret").write_text("secret")
    portal.refused_artifacts.add("refused")
    replica.run(
        f"""
        import os
        output = os.environ["REGATTA_OUTPUT_DIR"]
        os.mkdir(output + "/sub")
        open(output + "/sub/model.npz", "wb").write(b"m" * 3_000_000)
        open(output + "/refused", "w").write("too much")
        os.symlink("{tmp_path / "secret"}", output + "/link")
        """
    )
    assert portal.artifacts == {"sub/model.npz": b"m" * 3_000_000}
    assert "refused is not kept: that is too large" in portal.texts("agent")


# --- How it ended ----------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("script", "facts"),
    [
        ("import sys\nsys.exit(3)", {"code": 3, "why": messages.EXITED(code=3)}),
        (
            "def f():\n    raise ValueError('no')\n\nf()",
            {
                "code": 1,
                "why": messages.EXITED_WITH_ERROR(
                    code=1,
                    error=messages.ERROR_AT(error="ValueError: no", place=messages.FILE_LINE(file="train.py", line=2)),
                ),
            },
        ),
        (
            "import os\nos.abort()",
            {"code": None, "signal": 6, "why": messages.TERMINATED_BY_SIGNAL(signal="6 (SIGABRT)")},
        ),
        (
            "import numpy\nnumpy.ones((1024, 1024, 1024))",
            {"code": 1, "out_of_memory": True, "why": messages.OUT_OF_MEMORY_LIMIT(limit="512 MiB")},
        ),
        ("while True: pass", {"signal": 24, "why": messages.CPU_TIME_EXCEEDED(seconds=1)}),
    ],
)
def test_an_exit_is_reported_as_a_message(replica: Replica, script: str, facts: dict[str, object]) -> None:
    report = replica.run(script, LIMIT_MEMORY=512 * 2**20, LIMIT_CPU_SECONDS=1)
    assert {name: report[name] for name in facts} == facts


def test_a_missing_command_is_reported(replica: Replica, portal: IngestServer) -> None:
    replica.start("", command=["/nowhere/python"]).wait()
    assert mentions(portal.last_report()["why"], messages.NOT_STARTED)


_WITH_A_FAULT = """
import os, sys
from runtime.agent.__main__ import main
from runtime.isolation import syscalls

def fails(*_):
    raise OSError({code}, os.strerror({code}))

{call} = fails
sys.exit(main(sys.argv[1:]))
"""


def agent_in_which(call: str, code: int) -> list[str]:
    """Return the program of an agent whose calls of ``call`` fail with the errno ``code``."""
    return ["-c", _WITH_A_FAULT.format(call=call, code=code)]


@pytest.mark.parametrize("call", ["syscalls.landlock_ruleset", "syscalls.landlock_allow"])
@pytest.mark.parametrize(
    ("number", "code"), [(errno.ENOMEM, contract.EXIT_RESTART), (errno.EINVAL, contract.EXIT_ERROR)]
)
@pytest.mark.skipif(not syscalls.landlock_version(), reason="the kernel has no Landlock")
def test_a_process_whose_landlock_rules_cannot_be_made_does_not_start(
    replica: Replica, call: str, number: int, code: int
) -> None:
    replica.start("print('ran', flush=True)", agent=agent_in_which(call, number)).wait()
    report = replica.portal.last_report()
    assert report["code"] == code
    assert report["why"].startswith("could not be started: Landlock could not be set up: ")
    assert replica.portal.texts("stdout") == []


def test_a_replica_whose_end_cannot_be_waited_for_is_killed_and_replaced(replica: Replica) -> None:
    replica.start("import time; time.sleep(300)", agent=agent_in_which("os.pidfd_open", errno.EMFILE)).wait()
    report = replica.portal.last_report()
    assert report["code"] == contract.EXIT_RESTART
    assert report["why"] == messages.PROCESS_NOT_WATCHED(problem="Too many open files")


@pytest.mark.parametrize(
    ("number", "code"), [(errno.EMFILE, contract.EXIT_RESTART), (errno.EACCES, contract.EXIT_ERROR)]
)
def test_a_start_that_fails_is_tried_again_only_where_the_machine_is_short_of_something(
    replica: Replica, number: int, code: int
) -> None:
    replica.start("print('ran', flush=True)", agent=agent_in_which("os.pipe2", number)).wait()
    report = replica.portal.last_report()
    assert report["code"] == code
    assert report["why"] == messages.NOT_STARTED(why=f"[Errno {number}] {os.strerror(number)}")


# --- Limits ----------------------------------------------------------------------------------------------------------
def test_processes_that_together_take_too_much_memory_are_ended(replica: Replica) -> None:
    report = replica.run(
        """
        import os, time
        for _ in range(4):
            if not os.fork(): break
        hog = b"x" * (60 * 2**20)
        time.sleep(60)
        """,
        LIMIT_MEMORY=200 * 2**20,
    )
    assert report["out_of_memory"]
    assert mentions(report["why"], messages.OUT_OF_MEMORY_USED)
    assert report["why"].endswith(" of 200 MiB")


def test_memory_that_forks_share_is_counted_once(replica: Replica) -> None:
    report = replica.run(
        """
        import os, time
        shared = bytes(60 * 2**20).replace(b"\\0", b"x")
        for _ in range(4):
            if not os.fork(): time.sleep(0.5); os._exit(0)
        time.sleep(0.4)
        """,
        LIMIT_MEMORY=200 * 2**20,
    )
    assert report["code"] == 0, report["why"]


def test_a_fork_bomb_is_ended_and_leaves_nothing(replica: Replica, portal: IngestServer) -> None:
    # Bounded to protect the machine if the agent fails.
    report = replica.run(
        """
        import os, time
        for _ in range(8): os.fork()
        time.sleep(60)
        """,
        LIMIT_PROCESSES=20,
    )
    assert report["why"] == messages.TOO_MANY_PROCESSES(count=20)
    assert _marked(replica.directory) == []


def test_a_double_forked_daemon_does_not_outlive_its_job(replica: Replica, portal: IngestServer) -> None:
    replica.run(
        """
        import os, time
        if not os.fork():
            os.setsid()
            if not os.fork():
                time.sleep(600)
            os._exit(0)
        os.wait()
        """
    )
    assert _marked(replica.directory) == []


def _marked(directory: Path) -> list[int]:
    """Return the running processes that have the replica's work directory in their environment."""
    found = []
    for entry in Path("/proc").iterdir():
        try:
            if entry.name.isdigit() and str(directory / "work").encode() in (entry / "environ").read_bytes():
                found.append(int(entry.name))
        except OSError:
            continue
    return [pid for pid in found if is_running(pid)]


# --- Stopping --------------------------------------------------------------------------------------------------------
def test_asked_to_stop_the_process_gets_its_grace(replica: Replica, portal: IngestServer) -> None:
    replica.start(
        """
        import signal, sys, time
        signal.signal(signal.SIGTERM, lambda *_: (print("tidied up"), sys.exit(0)))
        print("up", flush=True)
        time.sleep(600)
        """
    )
    portal.wait_until(lambda: "up" in portal.texts())
    replica.ask_to_stop()
    assert replica.wait() == 0
    assert portal.texts() == ["up", "tidied up"]
    assert (portal.last_report()["code"], portal.last_report()["why"]) == (0, messages.STOPPED())


def test_one_that_does_not_listen_is_killed_after_the_grace(replica: Replica, portal: IngestServer) -> None:
    replica.start("import signal\nsignal.signal(signal.SIGTERM, signal.SIG_IGN)\n" + ENDLESS)
    portal.wait_until(lambda: "up" in portal.texts())
    (replica.directory / contract.STOP_FILE).write_text(json.dumps({"grace": 0.3}))
    replica.ask_to_stop()
    replica.wait()
    report = portal.last_report()
    assert (report["signal"], report["why"]) == (9, "did not stop when it was asked to, and was killed")


def test_stopped_while_the_portal_is_down_it_leaves_the_spool_and_its_final_state(
    replica: Replica, portal: IngestServer
) -> None:
    replica.start(ENDLESS)
    portal.wait_until(lambda: "up" in portal.texts())
    portal.go_away()
    (replica.directory / contract.STOP_FILE).write_text(json.dumps({"grace": 0.0}))
    replica.ask_to_stop()
    assert replica.wait(timeout=8) == contract.EXIT_ERROR
    assert replica.state is not None
    assert (replica.state.phase, replica.state.delivered) == ("exited", False)


def test_when_the_agent_is_killed_its_process_goes_with_it(replica: Replica, portal: IngestServer) -> None:
    replica.start("import os\nprint(os.getpid(), flush=True)\n" + ENDLESS)
    portal.wait_until(lambda: "up" in portal.texts())
    child = int(portal.texts()[0])
    assert replica.process is not None
    os.kill(replica.process.pid, signal.SIGKILL)
    until("the child is gone", lambda: not is_running(child))


# --- One agent per replica -------------------------------------------------------------------------------------------
def test_a_second_agent_for_the_same_replica_refuses(replica: Replica, portal: IngestServer) -> None:
    replica.start(ENDLESS)
    portal.wait_until(lambda: "up" in portal.texts())
    second = Replica(replica.directory, portal)
    second.start(ENDLESS)
    assert second.wait() == contract.EXIT_ERROR
    assert mentions(second.complaint(), messages.AGENT_ALREADY_RUNNING, replica="trainer-0")
    second.end()


# --- Membership ------------------------------------------------------------------------------------------------------
def test_hello_registers_and_the_end_takes_the_registration_back_at_once(
    replica: Replica, portal: IngestServer
) -> None:
    replica.directory.mkdir(parents=True)
    store = coordination.connect(replica.store)
    key = contract.member_key("job", 1, "trainer", 0)
    replica.start(JOINED + "    print(members[0].name, members[0].incarnation, flush=True)\n    time.sleep(600)")
    portal.wait_until(lambda: bool(portal.texts("stdout")))
    entry = store.get(key)
    assert entry is not None
    assert portal.texts("stdout") == [f"trainer-0 {entry.create_revision}"]
    phases = [(report["phase"], report.get("incarnation")) for report in portal.reports]
    assert phases == [("starting", None), ("registered", entry.create_revision)]
    replica.ask_to_stop()
    replica.wait()
    assert store.get(key) is None
    store.close()


def test_a_replica_whose_agent_was_killed_is_gone_when_the_lease_of_its_settings_has_run_out(
    replica: Replica, portal: IngestServer
) -> None:
    replica.directory.mkdir(parents=True)
    store = coordination.connect(replica.store)
    key = contract.member_key("job", 1, "trainer", 0)
    replica.start(JOINED + "    print('joined', flush=True)\n    time.sleep(600)", LEASE=1)
    portal.wait_until(lambda: "joined" in portal.texts("stdout"))
    replica.end()
    until("its place is free", lambda: store.get(key) is None, contract.LEASE_SECONDS[contract.TRAINER] / 2)
    store.close()


@pytest.mark.invariant("A restarted process never uses the incarnation of its predecessor.")
def test_a_restarted_replica_does_not_see_its_earlier_registration_as_its_own(
    replica: Replica, portal: IngestServer
) -> None:
    replica.directory.mkdir(parents=True)
    store = coordination.connect(replica.store)
    before = store.put(contract.member_key("job", 1, "trainer", 0), b'{"role": "trainer", "index": 0}',
                       lease=store.grant(60.0))  # fmt: skip
    other = store.put(contract.member_key("job", 1, "master", 0), b'{"role": "master", "index": 0}')
    replica.start(
        """
        import json, os, socket
        link = socket.socket(fileno=int(os.environ["REGATTA_AGENT_FD"]))
        link.sendall(b'{"op": "hello", "address": ""}\\n')
        for line in link.makefile("rb"):
            print([member["incarnation"] for member in json.loads(line)["members"]], flush=True)
        """,
        START_NUMBER=2,
    )
    portal.wait_until(lambda: bool(portal.texts("stdout")))
    store.delete(before.key)
    portal.wait_until(lambda: len(json.loads(portal.texts("stdout")[-1])) == 2)
    mine = store.get(before.key)
    incarnation_lists = [json.loads(text) for text in portal.texts("stdout")]
    assert incarnation_lists[0] == [other.create_revision]
    assert incarnation_lists[-1] == [other.create_revision, mine.create_revision]
    assert not any(before.create_revision in incarnations for incarnations in incarnation_lists)
    store.close()


@pytest.mark.etcd
def test_a_replica_that_etcd_does_not_let_in_is_ended_with_a_message(replica: Replica, guarded: EtcdServer) -> None:
    report = replica.run(JOINED, COORDINATION=f"etcd://somebody:wrong@{guarded.server}")
    assert report["why"].startswith(messages.MEMBERSHIP_LOST(why="etcd does not take this user and password."))


@pytest.mark.etcd
def test_an_etcd_that_comes_late_is_waited_for(replica: Replica, portal: IngestServer, tmp_path: Path) -> None:
    server = EtcdServer(tmp_path)
    replica.start(JOINED + "    print('joined', flush=True)\n    time.sleep(600)", COORDINATION=server.url)
    portal.wait_until(lambda: bool(portal.reports))
    server.start()
    try:
        portal.wait_until(lambda: "joined" in portal.texts("stdout"))
        store = coordination.connect(server.url)
        replica.ask_to_stop()
        replica.wait()
        assert store.list("/regatta/").entries == ()
        store.close()
    finally:
        server.kill()


# --- Visibility ------------------------------------------------------------------------------------------------------
@pytest.mark.invariant("User code sees no ingest token, no coordination store and no files of others.")
def test_a_trainer_sees_neither_token_nor_store_nor_files_that_are_not_its_own(
    replica: Replica, portal: IngestServer, tmp_path: Path
) -> None:
    (tmp_path / "database").write_text("everything")
    replica.run(
        f"""
        import os
        for path in ("{tmp_path / "database"}", "../state.json", f"/proc/{{os.getppid()}}/environ"):
            try: open(path).read()
            except PermissionError: print("denied")
        try: os.kill(os.getppid(), 9)
        except PermissionError: print("denied")
        print(sorted(set(os.environ) & {{"REGATTA_INGEST_TOKEN", "REGATTA_INGEST_URL", "REGATTA_COORDINATION"}}))
        """
    )
    assert portal.texts("stdout") == ["denied"] * 4 + ["[]"]


def test_inside_the_sandbox_numpy_and_multiprocessing_work(replica: Replica, portal: IngestServer) -> None:
    report = replica.run(
        """
        import multiprocessing, tempfile
        import numpy
        tempfile.TemporaryFile().write(b"x")
        with multiprocessing.Pool(2) as pool:
            print(sum(pool.map(abs, [1, -2])), int((numpy.ones((50, 50)) @ numpy.ones((50, 50))).sum()))
        """,
        LIMIT_MEMORY=512 * 2**20,
        LIMIT_PROCESSES=256,
    )
    assert report["code"] == 0, portal.texts()
    assert portal.texts("stdout") == ["3 125000"]


def test_the_users_variables_are_set_and_cannot_pose_as_the_contracts(replica: Replica, portal: IngestServer) -> None:
    users = json.dumps({"LEARNING": "fast", "REGATTA_ATTEMPT": "99"})
    replica.run(
        "import os\nprint(os.environ['LEARNING'], os.environ.get('REGATTA_ATTEMPT'))",
        USER_ENVIRONMENT=users,
    )
    assert portal.texts("stdout") == ["fast None"]


def test_the_parameters_are_a_variable_and_a_file(replica: Replica, portal: IngestServer) -> None:
    replica.run(
        "import os\nprint(os.environ['REGATTA_PARAMS'], open(os.environ['REGATTA_PARAMS_FILE']).read())",
        PARAMETERS='{"lr":0.1}',
    )
    assert portal.texts("stdout") == ['{"lr":0.1} {"lr":0.1}']


def test_a_link_in_place_of_the_file_of_parameters_is_not_followed(
    replica: Replica, portal: IngestServer, tmp_path: Path
) -> None:
    precious = tmp_path / "precious"
    precious.write_text("kept")
    code = "import os\nprint(open(os.environ['REGATTA_PARAMS_FILE']).read())"
    replica.run(code, PARAMETERS='{"lr":0.1}')
    (file,) = replica.directory.glob("**/params.json")
    file.unlink()
    file.symlink_to(precious)
    replica.run(code, PARAMETERS='{"lr":0.2}')
    assert (portal.texts("stdout")[-1], precious.read_text()) == ('{"lr":0.2}', "kept")


def test_a_missing_variable_is_reported() -> None:
    answer = subprocess.run(
        [sys.executable, "-m", "runtime.agent", "--", "true"],
        env={"PYTHONPATH": str(Path(contract.__file__).parent.parent)},
        capture_output=True,
        check=False,
        text=True,
    )
    assert answer.returncode == contract.EXIT_ERROR
    assert answer.stderr.startswith("REGATTA_REPLICA_DIR is not set")


def test_events_beyond_the_cap_are_dropped_and_reported_once(replica: Replica, portal: IngestServer) -> None:
    replica.run(
        """
        import json, os, socket
        link = socket.socket(fileno=int(os.environ["REGATTA_AGENT_FD"]))
        for _ in range(10_010):
            link.sendall(json.dumps({"op": "event", "kind": "x", "text": "again"}).encode() + b"\\n")
        """
    )
    assert len(portal.taken["events"]) == 10_000
    assert [text for text in portal.texts("agent") if "events" in text] == [
        "only the first 10,000 events of a replica are kept"
    ]
