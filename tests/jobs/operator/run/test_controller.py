"""The controller with API servers that simulate failures. The tests control threads and time."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from jobs.operator.client.api import Refusal
from jobs.operator.model import names
from jobs.operator.run.controller import Clocks, Controller, Options
from tests.jobs.operator.api_servers import (
    BusyServer,
    FaithfulServer,
    ForgetfulServer,
    ForgettingAnswersServer,
    QuietServer,
    RefusingServer,
    SilentServer,
)
from tests.jobs.operator.world import START, SUCCEEDED, failed, paddle_job, running


class Bench:
    """A controller with its API server, driven step by step by the test."""

    def __init__(self, server: FaithfulServer, **options: Any) -> None:
        self.server = server
        self.seconds = 0.0
        self.controller = self.another(**options)

    def another(self, **options: Any) -> Controller:
        clocks = Clocks(lambda: self.seconds, lambda: START + timedelta(seconds=self.seconds))
        return Controller(self.server, Options(requests=4, **options), clocks, later=lambda work: work())

    def run_reflectors(self, controller: Controller | None = None) -> list[float]:
        return [reflector.round() for reflector in (controller or self.controller).reflectors]

    def work(self, controller: Controller | None = None, limit: int = 50) -> int:
        """Run passes until the queue is empty."""
        chosen = controller or self.controller
        for passes in range(limit):
            taken = chosen.queue.get(wait=False)
            if taken is None:
                return passes
            chosen.reconcile(taken[0])
            chosen.queue.done(taken[0])
        raise AssertionError(f"still something to do after {limit} passes")

    def run(self, seconds: float = 0.0) -> None:
        self.seconds += seconds
        for _ in range(6):
            self.run_reflectors()
            self.work()

    def submit(self, **spec: Any) -> None:
        self.server.submit(paddle_job(**spec))
        self.run()

    def up(self) -> None:
        self.server.set_pod_status(running())
        self.run()

    @property
    def status(self) -> dict[str, Any]:
        return self.server.of(names.KIND)[0].get("status") or {}

    def events(self) -> dict[str, list[str]]:
        messages: dict[str, list[str]] = {}
        for event in self.server.of("Event"):
            messages.setdefault(event["reason"], []).append(event["message"])
        return messages

    def metric(self, line: str) -> float:
        lines = self.controller.metrics_text().decode().splitlines()
        return next((float(text.rpartition(" ")[2]) for text in lines if text.startswith(line)), 0.0)


def test_a_job_goes_from_its_submission_to_its_end() -> None:
    bench = Bench(FaithfulServer())
    bench.submit(ps=1, worker=2)
    bench.up()
    assert (bench.status["phase"], len(bench.server.of("ConfigMap"))) == ("Running", 1)
    bench.server.set_pod_status(SUCCEEDED)
    bench.run()
    assert (bench.status["phase"], bench.server.of("Pod"), bench.server.of("Service")) == ("Completed", [], [])


def test_a_job_that_rests_is_not_written_to() -> None:
    bench = Bench(FaithfulServer())
    bench.submit(worker=2)
    bench.up()
    bench.server.calls.clear()
    bench.controller.queue.add("team/wd")
    bench.run()
    assert {method for method, _ in bench.server.calls} <= {"WATCH", "GET"}


@pytest.mark.parametrize(("prefix", "pods"), [("te", 2), ("other-", 0)])
def test_a_controller_with_a_prefix_leaves_jobs_of_other_namespaces_alone(prefix: str, pods: int) -> None:
    bench = Bench(FaithfulServer(), prefix=prefix)
    bench.submit(worker=2)
    assert len(bench.server.of("Pod")) == pods


def test_events_report_the_action_its_kind_and_the_job() -> None:
    bench = Bench(FaithfulServer())
    bench.submit(ps=2, worker=5)
    bench.up()
    messages = bench.events()
    assert "created Pod wd-ps-0, wd-ps-1, wd-worker-0, wd-worker-1 and 3 more" in messages["Created"]
    assert messages["Running"] == ["The job is running."]
    about = bench.server.of("Event")[0]["involvedObject"]
    assert (about["kind"], about["apiVersion"], about["name"]) == ("PaddleJob", "batch.paddlepaddle.org/v1", "wd")


def test_l15_a_status_that_was_changed_meanwhile_is_tried_again_after_a_second() -> None:
    bench = Bench(FaithfulServer())
    bench.submit(worker=1)
    bench.up()
    bench.server.set_pod_status(SUCCEEDED)
    bench.run_reflectors()
    job = bench.server.objects[names.KIND, "team", "wd"]
    bench.server.call(
        "PATCH", f"/apis/{names.API_VERSION}/namespaces/team/paddlejobs/wd", {"metadata": {"labels": {"a": "b"}}}
    )
    bench.work()
    assert job["status"]["phase"] == bench.status["phase"] == "Running"
    assert bench.metric('paddlejob_passes_total{result="conflict"}') == 1
    bench.run(seconds=1)
    assert bench.status["phase"] == "Completed"


def test_l16_a_refused_pod_is_reported_and_retried_with_backoff() -> None:
    reason = 'pods "wd-worker-0" is forbidden: exceeded quota: compute'
    server = RefusingServer(Refusal(403, "Forbidden", reason), lambda verb, kind: (verb, kind) == ("POST", "Pod"))
    bench = Bench(server)
    bench.submit(worker=1)
    bench.run(seconds=1)
    assert (bench.status["reason"], bench.status["message"]) == ("Refused", reason)
    assert reason in bench.events()["Refused"]
    tries = 'paddlejob_actions_total{kind="Pod",result="Refusal",verb="Create"}'
    before = bench.metric(tries)
    for _ in range(60):
        bench.run(seconds=1)
    assert 3 <= bench.metric(tries) - before <= 10
    server.refuses = lambda verb, kind: False
    bench.run(seconds=60)
    assert (len(server.of("Pod")), "reason" in bench.status) == (1, False)


def test_l17_pods_of_a_deleted_job_of_the_same_name_are_not_taken_over() -> None:
    bench = Bench(FaithfulServer())
    bench.submit(worker=1)
    (old,) = bench.server.of("Pod")
    bench.server.drop(names.KIND, "team", "wd")  # its pod still exists
    bench.submit(worker=1)
    assert bench.status["reason"] == "NameTaken"
    assert bench.server.of("Pod") == [old]
    bench.server.drop("Pod", "team", "wd-worker-0")
    bench.run(seconds=5)
    (new,) = bench.server.of("Pod")
    assert new["metadata"]["ownerReferences"][0]["uid"] != old["metadata"]["ownerReferences"][0]["uid"]


@pytest.mark.invariant("The controller creates each object once, even if it never receives the answers.")
@pytest.mark.parametrize("lost", range(1, 12))
def test_l18_a_controller_without_watch_events_does_nothing_twice(lost: int) -> None:
    bench = Bench(ForgettingAnswersServer(lost))
    bench.server.times, times = 0, lost  # type: ignore[attr-defined]
    bench.server.submit(paddle_job(ps=2, worker=2))
    bench.server.times = times  # type: ignore[attr-defined]
    for _ in range(lost + 2):
        bench.run(seconds=60)
    assert len(bench.server.of("Pod")) == len(bench.server.of("Service")) == 4
    bench.up()
    assert (bench.status["phase"], bench.status["attempt"]) == ("Running", 1)


def test_a_second_controller_goes_on_where_the_first_one_crashed() -> None:
    """The first controller writes the status and crashes before it has deleted anything."""
    server = RefusingServer(Refusal(0, "Unreachable"), lambda verb, kind: False)
    bench = Bench(server)
    bench.submit(worker=2, runPolicy={"backoffLimit": 3})
    bench.up()
    server.set_pod_status(failed())
    server.refuses = lambda verb, kind: verb == "DELETE"
    bench.run()
    assert (bench.status["restarts"], len(server.of("Pod"))) == (1, 2)
    server.refuses = lambda verb, kind: False
    bench.controller = bench.another()
    bench.run(seconds=60)
    bench.up()
    assert (bench.status["phase"], bench.status["restarts"]) == ("Running", 1)


def test_a_pass_never_reads_a_state_from_before_the_last_one() -> None:
    """The reflectors get no events: only responses to the controller's own writes arrive."""
    bench = Bench(SilentServer())
    bench.submit(ps=1, worker=2)
    posted = bench.server.count("POST", "pods")
    for _ in range(3):
        bench.controller.queue.add("team/wd")
        bench.work()
    assert bench.server.count("POST", "pods") == posted == 3


# --- Reflectors ------------------------------------------------------------------------------------------------------
def test_an_expired_watch_causes_a_relist() -> None:
    bench = Bench(ForgetfulServer())
    bench.submit(worker=1)
    bench.up()
    assert bench.status["phase"] == "Running"
    assert bench.metric('paddlejob_watch_failures_total{kind="Pod",reason="Expired"}') > 0


@pytest.mark.parametrize(("retry_after", "least", "most"), [(7.0, 7.0, 7.0), (None, 0.25, 0.5)])
def test_a_busy_server_gets_no_request_before_retry_after(retry_after: float | None, least: float, most: float) -> None:
    bench = Bench(BusyServer(4, retry_after))
    assert all(least <= pause <= most for pause in bench.run_reflectors())
    assert bench.controller.unready() == "Not listed yet: paddlejobs, pods, services, configmaps."
    assert bench.run_reflectors() == [0.0, 0.0, 0.0, 0.0]
    assert bench.controller.unready() == ""


def test_empty_watches_are_retried_with_backoff() -> None:
    bench = Bench(SilentServer())
    pauses = [bench.run_reflectors()[0] for _ in range(12)]
    assert 0 < pauses[0] <= 0.5
    assert 15 <= pauses[-1] <= 30


def test_a_watch_that_ends_after_a_quiet_while_is_resumed_at_once() -> None:
    server = QuietServer()
    bench = Bench(server)

    def linger() -> None:
        bench.seconds += 240

    server.linger = linger
    assert [bench.run_reflectors()[0] for _ in range(3)] == [0, 0, 0]


def test_pauses_after_failures_grow_to_half_a_minute() -> None:
    bench = Bench(RefusingServer(Refusal(0, "Unreachable"), lambda verb, kind: True))
    pauses = [bench.run_reflectors()[0] for _ in range(12)]
    assert pauses[0] <= 0.5
    assert 15 <= pauses[-1] <= 30


def test_a_watch_that_breaks_is_resumed_where_it_was() -> None:
    bench = Bench(FaithfulServer())
    bench.submit(worker=1)
    lists = bench.server.count("GET", "pods")
    bench.server.set_pod_status(running())
    bench.run()
    assert bench.server.count("GET", "pods") == lists


def test_everything_is_relisted_after_ten_minutes() -> None:
    bench = Bench(SilentServer())
    bench.submit(worker=1)
    bench.server.set_pod_status(running())  # without events
    bench.run(seconds=599)
    assert bench.status["phase"] == "Pending"
    bench.run(seconds=1)
    assert bench.status["phase"] == "Running"


def test_a_list_comes_in_pages() -> None:
    bench = Bench(FaithfulServer())
    for number in range(501):
        bench.server.submit(paddle_job(f"j{number}", worker=1))
    bench.run_reflectors()
    assert bench.controller.cache.count(names.KIND) == 501


def test_a_controller_without_answers_for_too_long_is_unhealthy() -> None:
    bench = Bench(FaithfulServer())
    bench.run_reflectors()
    assert bench.controller.unhealthy() == ""
    bench.seconds += 601
    assert "has said nothing of paddlejobs" in bench.controller.unhealthy()


def test_metrics_count_jobs_by_phase_and_cached_objects() -> None:
    bench = Bench(FaithfulServer())
    bench.submit(worker=2)
    bench.up()
    assert bench.metric('paddlejob_jobs{phase="Running"}') == 1
    assert bench.metric('paddlejob_objects{kind="Pod"}') == 2
    assert bench.metric('paddlejob_actions_total{kind="Pod",result="done",verb="Create"}') == 2


def test_no_two_jobs_on_the_nodes_network_have_the_same_ports() -> None:
    bench = Bench(FaithfulServer())
    for number in range(5):
        bench.server.submit(paddle_job(f"j{number}", worker=1, intranet="Host"))
    bench.run()
    bench.controller = bench.another()  # has no state but that of the jobs
    bench.server.submit(paddle_job("j5", worker=1, intranet="Host"))
    bench.run()
    ports = [job["metadata"]["annotations"]["host-port"] for job in bench.server.of(names.KIND)]
    assert len(set(ports)) == 6


def test_a_job_past_its_ttl_is_deleted_without_a_request() -> None:
    bench = Bench(FaithfulServer())
    bench.submit(worker=1, runPolicy={"ttlSecondsAfterFinished": 30})
    bench.up()
    bench.server.set_pod_status(SUCCEEDED)
    bench.run()
    bench.run(seconds=29)
    assert len(bench.server.of(names.KIND)) == 1
    bench.run(seconds=1)
    assert bench.server.of(names.KIND) == []


WRITES: list[tuple[str, Callable[[str, str], bool]]] = [
    ("events", lambda verb, kind: (verb, kind) == ("POST", "Event")),
    ("services", lambda verb, kind: (verb, kind) == ("POST", "Service")),
]


@pytest.mark.parametrize(("what", "refuses"), WRITES, ids=[what for what, _ in WRITES])
def test_what_is_refused_keeps_nothing_else_from_being_done(what: str, refuses: Callable[[str, str], bool]) -> None:
    bench = Bench(RefusingServer(Refusal(403, "Forbidden", "no"), refuses))
    bench.submit(worker=2)
    bench.up()
    assert bench.status["phase"] == "Running"
