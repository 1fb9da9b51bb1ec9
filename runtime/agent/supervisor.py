"""Supervisor of one replica: lock, start, watch, end, last report."""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import sys
import threading
import time
from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from runtime import contract
from runtime.agent import child_process, line_splitter, process_tree, short_tmpdir
from runtime.agent.child_channel import Link
from runtime.agent.exit_status import Ending, Force, Forced, ending, mebibytes
from runtime.agent.limits import Limits
from runtime.agent.portal_client import NotFetched, Portal
from runtime.agent.process_output import ProcessOutput
from runtime.agent.settings import Settings
from runtime.agent.state_file import StateFile
from runtime.contract import Member, ReplicaState
from runtime.isolation import cgroup, landlock, syscalls
from runtime.isolation.network import is_kept
from runtime.messages import training as messages

if TYPE_CHECKING:
    from runtime.agent.service import Listening, Service

WATCH_SECONDS = 0.1
# Time for data still in pipes and socket after the last process has ended.
DRAIN_SECONDS = 5.0
# Time after the grace period for the last lines and the report.
FINAL_REPORT_SECONDS = 3.0
# How long the last report is retried when nothing can be stored.
UNKEPT_SECONDS = 30.0
# Timeout for connecting to the portal, and for its answer, when its grace period is requested.
ASKING_SECONDS = 1.5


class AlreadyRunning(Exception):
    """Another agent holds the replica's directory."""


class Supervisor:
    """Runs one command to its end. ``StateFile`` records how far it is, ``ProcessOutput`` stores what it prints."""

    def __init__(self, settings: Settings, command: Sequence[str]) -> None:
        self._settings = settings
        self._command = command
        ticks = process_tree.start_ticks(os.getpid())
        self._begun = ReplicaState(os.getpid(), ticks, "starting", time.time(), start_number=settings.start_number)
        self._link = Link()
        self._wake = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
        self._stopping = threading.Lock()
        self._forced: Forced | None = None
        self._kill_at: float | None = None
        self._term_sent = False
        self._status: int | None = None
        self._service: Service | None = None

    # --- Run ---------------------------------------------------------------------------------------------------------
    def run(self) -> int:
        """Take the lock, run the command, deliver, and return the agent's exit code. Raises AlreadyRunning."""
        self._take_lock()
        self._state_file = StateFile(self._settings.directory, self._begun)
        syscalls.prctl(syscalls.PR_SET_CHILD_SUBREAPER, 1)
        # Protects the agent's environment, with the token in it, from other processes of the same user.
        syscalls.prctl(syscalls.PR_SET_DUMPABLE, 0)
        # Loaded only now: an agent that does not get the lock ends soon.
        from runtime.agent import service

        listening, problem = service.listen(self._settings)
        started, remark = self._start_child()
        try:
            self._start_services(started, " ".join(filter(None, (remark, problem))))
            self._start_service(started, listening)
        except OSError as error:
            return self._end_unkept(started, error)
        if isinstance(started, child_process.Child):
            self._state_file.note(phase="running")
            self._watch_over(started)
            end = self._wind_down(started)
        else:
            end = started
        return self._deliver(end)

    def _take_lock(self) -> None:
        if self._settings.lock_fd is not None:
            os.set_inheritable(self._settings.lock_fd, False)
        elif contract.take_lock(self._settings.directory) is None:
            raise AlreadyRunning(
                messages.AGENT_ALREADY_RUNNING(replica=self._settings.replica, directory=self._settings.directory)
            )

    def _start_service(self, started: child_process.Child | Ending, listening: Listening) -> None:
        if not isinstance(started, child_process.Child):
            listening.close()
            return
        from runtime.agent.service import Service

        self._service = Service(self._settings, self._command, started, listening, self._sender.report, self._pause)
        if self._forced is not None:
            self._service.release()

    def _start_child(self) -> tuple[child_process.Child | Ending, str]:
        """Start the command before any thread runs, or return the ending if that fails; with a remark for the log."""
        if (self._settings.directory / contract.STOP_FILE).exists():
            return Ending(None, None, False, messages.STOPPED_BEFORE_START()), ""
        ruleset, remark = None, ""
        try:
            if self._settings.sandbox == contract.LANDLOCK:
                ruleset = child_process.ruleset(self._settings, self._command)
        except landlock.LandlockMissing as missing:
            remark = str(missing)
        except child_process.NotStarted as error:
            return Ending(error.code, None, False, str(error)), ""
        try:
            return child_process.start(self._settings, self._command, self._link.child_end, ruleset), remark
        except child_process.NotStarted as error:
            return Ending(error.code, None, False, str(error)), remark
        finally:
            if ruleset is not None:
                os.close(ruleset)

    def _start_services(self, started: child_process.Child | Ending, remark: str) -> None:
        # Loaded only now: the process should not wait for an HTTP client that it does not use.
        from runtime.agent.control.pause import Pause
        from runtime.agent.delivery.ingest_client import Ingest
        from runtime.agent.delivery.shipping import Sender
        from runtime.agent.membership import Membership
        from runtime.agent.pipes import PipeReader

        settings = self._settings
        ingest = Ingest(settings.ingest_url, settings.attempt_id, settings.ingest_token, settings.traceparent)
        try:
            self._sender = Sender(ingest, settings.replica, settings.start_number, settings.directory, self._replaced)
        except OSError:  # the disk may be full
            self._state_file.reserve.release()
            self._sender = Sender(ingest, settings.replica, settings.start_number, settings.directory, self._replaced)
        self._membership = Membership(settings, self._send_members, self._registered, self._fenced)
        threading.Thread(target=self._await_signals, name="signals", daemon=True).start()
        self._sender.report("starting")
        if remark:
            self._sender.line(remark)
        self._sender.start()
        if isinstance(started, child_process.Child):
            self._pause = Pause(started, self._link.send)
            self._output = ProcessOutput(
                self._sender,
                self._membership.register,
                self._unkept,
                self._pause.report,
                work=settings.work,
                log_cap=settings.log_cap,
                cost_lines=settings.cost_lines,
            )
            self._reader = PipeReader(
                {started.stdout: line_splitter.STDOUT, started.stderr: line_splitter.STDERR}, self._output.lines
            )
            self._reader.start()
            self._link.listen(self._output)
            self._membership.start()

    # --- While it runs -----------------------------------------------------------------------------------------------
    def _watch_over(self, started: child_process.Child) -> None:
        """Watch the process until it has ended and been collected."""
        root = os.getpid()
        joined: Callable[[], Collection[int]] = tuple
        if started.init is not None:
            root = started.init
            # Terminals are not below the namespaces' first process; without namespaces they are below this process.
            if self._service is not None:
                joined = self._service.pids
        limits = Limits(self._settings, root, started.shared_memory, joined=joined)
        try:
            poll = _Poll(os.pidfd_open(started.pid), self._wake)
        except OSError as error:
            self._forced = Forced(Force.UNWATCHED, messages.PROCESS_NOT_WATCHED(problem=error.strerror))
            self._collect(self._kill_all(started), started)
            limits.close()
            return
        with contextlib.closing(limits), contextlib.closing(poll):
            while self._status is None:
                poll.wait(WATCH_SECONDS)
                self._collect(process_tree.reap(), started)
                self._carry_out_stop(started)
                self._enforce(limits, started)

    def _collect(self, ended: dict[int, int], started: child_process.Child) -> None:
        if started.pid in ended:
            self._status = os.waitstatus_to_exitcode(ended[started.pid])
            started.process.returncode = self._status

    def _carry_out_stop(self, started: child_process.Child) -> None:
        """Send SIGTERM once, and SIGKILL to everything after the grace period."""
        if self._status is not None or self._kill_at is None:
            return
        if not self._term_sent:
            self._term_sent = True
            with contextlib.suppress(ProcessLookupError):
                os.killpg(started.pid, signal.SIGTERM)
        if time.monotonic() >= self._kill_at:
            if self._forced and self._forced.force is Force.STOPPED:
                self._forced = Forced(Force.KILLED, "did not stop when it was asked to, and was killed")
            self._collect(self._kill_all(started), started)

    def _enforce(self, limits: Limits, started: child_process.Child) -> None:
        broken = None if self._status is not None else self._without_network() or limits.broken()
        if broken:
            self._forced = broken
            self._collect(self._kill_all(started), started)

    def _without_network(self) -> Forced | None:
        network = self._settings.network
        if network is None or is_kept(network.keeper):
            return None
        return Forced(Force.NETWORK, messages.NETWORK_PROCESS_ENDED())

    # --- Reasons to stop ---------------------------------------------------------------------------------------------
    def _stop(self, forced: Forced, grace: float) -> None:
        """Request the end of the process. The first reason and the shortest grace period apply. From any thread."""
        kill_at = time.monotonic() + grace
        with self._stopping:
            self._forced = self._forced or forced
            self._kill_at = kill_at if self._kill_at is None else min(self._kill_at, kill_at)
        if self._service is not None:
            self._service.release()
        os.eventfd_write(self._wake, 1)

    def _await_signals(self) -> None:
        while True:
            signal.sigwait(STOP_SIGNALS)
            grace = self._grace()
            self._sender.give_up_at(time.monotonic() + grace + FINAL_REPORT_SECONDS)
            self._stop(Forced(Force.STOPPED, messages.STOPPED()), grace)

    def _grace(self) -> float:
        try:
            stop = json.loads((self._settings.directory / contract.STOP_FILE).read_text(encoding="utf-8"))
            return float(stop["grace"])
        except (OSError, ValueError, KeyError, TypeError):
            return self._settings.grace if self._settings.termination is None else self._grace_in_a_pod()

    def _grace_in_a_pod(self) -> float:
        """Return the grace period of a container, requested from the portal.

        No file can be left in a container, and a signal does not carry it. The portal has to answer soon, because the
        node waits no longer than the grace period and a few seconds.
        """
        settings = self._settings
        portal = Portal(settings.ingest_url, settings.attempt_id, settings.ingest_token, ASKING_SECONDS, ASKING_SECONDS)
        try:
            return portal.grace()
        except (NotFetched, OSError, KeyError, TypeError, ValueError):
            return settings.grace

    def _fenced(self, why: str) -> None:
        self._link.send(contract.FENCED, why=why)
        self._stop(Forced(Force.FENCED, messages.MEMBERSHIP_LOST(why=why)), self._settings.grace)

    def _replaced(self, why: str) -> None:
        self._stop(Forced(Force.REPLACED, messages.ATTEMPT_OVER(why=why)), 0.0)

    def _unkept(self, why: str) -> None:
        self._stop(Forced(Force.UNHEARD, why), self._settings.grace)

    # --- Messages to the process -------------------------------------------------------------------------------------
    def _send_members(self, revision: int, members: Sequence[Member]) -> None:
        self._link.send(contract.MEMBERS, revision=revision, members=[member.to_json() for member in members])

    def _registered(self, incarnation: int) -> None:
        self._state_file.note(phase="registered", registered=time.time())
        self._sender.report("registered", incarnation=incarnation)

    # --- The end -----------------------------------------------------------------------------------------------------
    def _wind_down(self, started: child_process.Child) -> Ending:
        """End all processes, read all remaining output, and return how the process ended."""
        if self._service is not None:
            self._service.close_terminals()
        self._kill_all(started)
        if self._service is not None:
            self._service.close()
        self._leave_cgroup()
        short_tmpdir.remove(self._settings.temporary)
        self._membership.leave()
        self._reader.drain(DRAIN_SECONDS)
        self._link.drain(DRAIN_SECONDS)
        self._output.close()
        assert self._status is not None  # noqa: S101  _watch_over returned
        traceback = self._output.traceback
        end = ending(self._status, self._forced, traceback, self._settings.memory, self._settings.cpu_seconds)
        stopped = self._forced is not None and self._forced.force is Force.STOPPED
        if self._settings.termination is not None and stopped and end.code == contract.EXIT_OK:
            # The node may ask as well as the portal: a server or master that the node evicts has not finished.
            return replace(end, code=contract.EXIT_RESTART)
        return end

    def _kill_all(self, started: child_process.Child) -> dict[int, int]:
        """Kill everything that the process has started: with its cgroup if it has one, and one by one.

        Returns the wait statuses, by pid, of those that were this process's children.
        """
        if self._settings.cgroup is not None:
            with contextlib.suppress(OSError):
                cgroup.kill(self._settings.cgroup)
        return process_tree.kill_all(started.pid)

    def _leave_cgroup(self) -> None:
        """Remove the empty cgroup. If the kernel has killed in it for memory, that is the reason of the end."""
        group = self._settings.cgroup
        if group is None:
            return
        if self._forced is None and self._status == -signal.SIGKILL and cgroup.killed_for_memory(group):
            why = messages.OUT_OF_MEMORY_REACHED(limit=mebibytes(self._settings.memory))
            self._forced = Forced(Force.MEMORY, why)
        try:
            cgroup.end(group)
        except OSError as error:
            # The portal tries again when it removes the attempt.
            sys.stderr.write(f"The cgroup {group} could not be removed: {error}.\n")

    def _deliver(self, end: Ending) -> int:
        self._state_file.note(phase="exited", finished=time.time(), **end.facts())
        delivered = self._sender.finish(
            self._settings.output, self._state_file.state.last_report(self._settings.replica)
        )
        self._state_file.note(delivered=delivered)
        self._state_file.reserve.release()
        if self._settings.termination is not None:
            return self._state_file.state.write_termination_message(self._settings.termination)
        return contract.EXIT_OK if delivered else contract.EXIT_ERROR

    def _end_unkept(self, started: child_process.Child | Ending, error: OSError) -> int:
        """End the process of a replica whose output cannot be stored, and report that without a spool."""
        from runtime.agent.delivery.ingest_client import Ingest
        from runtime.agent.delivery.shipping import report_alone

        if isinstance(started, child_process.Child):
            self._kill_all(started)
        why = f"what it printed could not be kept: {error.strerror}"
        self._state_file.note(
            phase="exited", finished=time.time(), **Ending(contract.EXIT_ERROR, None, False, why).facts()
        )
        settings = self._settings
        ingest = Ingest(settings.ingest_url, settings.attempt_id, settings.ingest_token, settings.traceparent)
        self._state_file.note(
            delivered=report_alone(ingest, self._state_file.state.last_report(settings.replica), UNKEPT_SECONDS)
        )
        if settings.termination is not None:
            return self._state_file.state.write_termination_message(settings.termination)
        return contract.EXIT_ERROR


STOP_SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)


class _Poll:
    """Waits for the end of a process or for a wake-up."""

    def __init__(self, pidfd: int, wake: int) -> None:
        self._pidfd, self._wake = pidfd, wake
        self._poll = select.poll()
        for descriptor in (pidfd, wake):
            self._poll.register(descriptor, select.POLLIN)

    def wait(self, seconds: float) -> None:
        if any(descriptor == self._wake for descriptor, _ in self._poll.poll(seconds * 1000)):
            os.eventfd_read(self._wake)

    def close(self) -> None:
        os.close(self._pidfd)
