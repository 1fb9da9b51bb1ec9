"""A running portal that a real Prometheus scrapes, its log as JSON, and its traces at a collector."""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from jobs.lifecycle.states import ACTIVE
from regatta import Job
from tests.end_to_end.support.portal import PASSWORD, ROOT, RunningPortal
from tests.ports import free_port
from tests.servers.otlp_collector import Collector, Received
from tests.servers.prometheus_server import PrometheusServer
from tests.waiting import until

pytestmark = [pytest.mark.processes, pytest.mark.timeout(180)]
SECONDS = 60.0
PROCESSES = ("portal-web", "portal-worker", "portal-sweep")
SUBMISSION = "POST /api/v1/namespaces/<str:ns>/jobs"
STAGES = ("job.admit", "job.build", "job.launch", "job.register", "job.run", "job.stop")
REPLICAS = ("master-0", "pserver-0", "trainer-0", "trainer-1")
PRINTS_ITS_TRACE = "import os\nprint(os.environ['REGATTA_TRACEPARENT'], flush=True)\n"


def first_of_three_ports() -> int:
    """Return a free port whose next two are free as well."""
    return until("three free ports in a row", lambda: _if_three_are_free(free_port()))


def _if_three_are_free(port: int) -> int:
    try:
        for number in range(port, port + 3):
            socket.create_server(("127.0.0.1", number)).close()
    except OSError:
        return 0
    return port


@pytest.fixture(scope="module")
def operations() -> int:
    return first_of_three_ports()


@pytest.fixture(scope="module")
def collector() -> Iterator[Collector]:
    with Collector().open() as collector:
        yield collector


@pytest.fixture(scope="module")
def monitored(
    tmp_path_factory: pytest.TempPathFactory, operations: int, collector: Collector
) -> Iterator[RunningPortal]:
    """A portal with operations ports and a log of JSON. It records the traces of submissions only."""
    made = RunningPortal(
        tmp_path_factory.mktemp("monitored") / "data",
        REGATTA_OPERATIONS_PORT=str(operations),
        REGATTA_LOG_FORMAT="json",
        REGATTA_OTLP_ENDPOINT=collector.endpoint,
        REGATTA_OTLP_HEADERS="Authorization=Bearer%20collector-key",
        REGATTA_TRACE_REQUESTS="0",
        REGATTA_STOP_GRACE_SECONDS="2",
    )
    with made.open():
        yield made


@pytest.fixture(scope="module")
def prometheus(
    tmp_path_factory: pytest.TempPathFactory, monitored: RunningPortal, operations: int
) -> Iterator[PrometheusServer]:
    targets = {name: f"127.0.0.1:{operations + offset}" for offset, name in enumerate(PROCESSES)}
    made = PrometheusServer(tmp_path_factory.mktemp("prometheus"), targets, ROOT / "deploy/monitoring/alerts.yaml")
    made.start()
    yield made
    made.stop()


@pytest.fixture(scope="module")
def job(monitored: RunningPortal) -> Job:
    """A job that has succeeded."""
    with monitored.client() as portal:
        spec = portal.examples.get("digits")
        spec["passes"] = 1
        spec["roles"]["trainer"]["replicas"] = 2
        spec["files"]["train.py"] = PRINTS_ITS_TRACE + spec["files"]["train.py"]
        ended = portal.jobs.wait(portal.jobs.submit(spec, namespace=portal.namespaces.default()).id, SECONDS)
        assert ended.state == "SUCCEEDED"
        return ended


def lines_of(portal: RunningPortal, process: str) -> list[dict[str, Any]]:
    """Return the log lines of a process, without the prefix of the supervisor."""
    prefix = f"{process:>6} | "
    printed = [line.removeprefix(prefix) for line in portal.printed().splitlines() if line.startswith(prefix)]
    return [json.loads(line) for line in printed]


@pytest.mark.prometheus
def test_prometheus_scrapes_every_process(prometheus: PrometheusServer) -> None:
    def healths() -> set[str]:
        return {target["health"] for target in prometheus.targets()}

    until("all targets are up", lambda: healths() == {"up"}, SECONDS, story=prometheus.targets)
    until("their series arrived", lambda: len(prometheus.query("regatta_info")) == len(PROCESSES), SECONDS)


@pytest.mark.prometheus
def test_it_answers_for_the_jobs_by_state(prometheus: PrometheusServer) -> None:
    def states() -> set[str]:
        return {state for (state,) in prometheus.query("max by (state) (regatta_jobs)")}

    until("the jobs were counted", lambda: states() == {str(state) for state in ACTIVE}, SECONDS)


@pytest.mark.prometheus
def test_it_answers_for_the_ended_jobs(prometheus: PrometheusServer, job: Job) -> None:
    query = 'sum(regatta_jobs_ended_total{state="SUCCEEDED"})'
    until("the job was counted", lambda: prometheus.query(query) == {(): 1.0}, SECONDS)


@pytest.mark.prometheus
def test_it_answers_for_the_rate_of_requests(prometheus: PrometheusServer, monitored: RunningPortal) -> None:
    def rate() -> float:
        with monitored.http() as http:
            http.get("/api/v1/me")
        return prometheus.query('sum(rate(regatta_http_requests_total{route="api-me"}[10s]))').get((), 0.0)

    until("requests have a rate", rate, SECONDS)


@pytest.mark.prometheus
def test_it_answers_for_the_output_of_jobs(prometheus: PrometheusServer, job: Job) -> None:
    until("points were counted", lambda: prometheus.query("sum(regatta_ingest_points_total) > 0"), SECONDS)


@pytest.mark.prometheus
def test_it_evaluates_every_alert(prometheus: PrometheusServer) -> None:
    def healths() -> set[str]:
        return {rule["health"] for rule in prometheus.rules()}

    until("all rules were evaluated", lambda: healths() == {"ok"}, SECONDS, story=prometheus.rules)


@pytest.mark.parametrize("offset", range(3), ids=PROCESSES)
def test_every_process_is_healthy(monitored: RunningPortal, operations: int, offset: int) -> None:
    assert httpx.get(f"http://127.0.0.1:{operations + offset}/healthz", timeout=20).json()["status"] == "ok"


def test_every_line_of_a_process_is_one_json_object(monitored: RunningPortal, job: Job) -> None:
    lines = [line for process in ("web", "worker", "sweep") for line in lines_of(monitored, process)]
    assert lines
    assert [line for line in lines if not {"time", "level", "logger", "message"} <= line.keys()] == []


def test_a_request_s_line_has_the_id_of_its_response(monitored: RunningPortal) -> None:
    with monitored.http() as http:
        number = http.get("/api/v1/me").headers["X-Request-ID"]

    def line() -> dict[str, Any]:
        return next((one for one in lines_of(monitored, "web") if one.get("request_id") == number), {})

    found = until("the line was written", line, SECONDS)
    assert (found["route"], found["status"], found["method"]) == ("api-me", 200, "GET")
    assert isinstance(found["user"], int)
    assert found["duration"] > 0


def test_lines_of_an_agent_s_requests_name_job_and_attempt(monitored: RunningPortal, job: Job) -> None:
    ingested = [line for line in lines_of(monitored, "web") if line.get("route") == "ingest-report"]
    assert {(line["job"], line["attempt"]) for line in ingested} == {(job.id, 1)}


def test_no_line_has_the_password_or_a_token(monitored: RunningPortal, job: Job) -> None:
    assert monitored.token() not in monitored.printed()
    assert PASSWORD not in monitored.printed()


# --- Traces ----------------------------------------------------------------------------------------------------------
@pytest.fixture(scope="module")
def spans(collector: Collector, job: Job) -> list[Received]:
    """All spans of the job's trace, once the last of each process has arrived."""

    def arrived() -> bool:
        names = {span.name for span in collector.spans}
        return {SUBMISSION, "job.stop", "replica.register", "replica.first_point"} <= names

    until("the spans of all processes arrived", arrived, SECONDS)
    return collector.of_job(job.id)


def named(span: Received) -> str:
    return " ".join(filter(None, (span.name, str(span.attributes.get("regatta.replica", "")))))


@pytest.mark.invariant("A job's trace leads from the request that submitted it to the first points of its trainers.")
def test_one_trace_leads_from_the_request_to_the_first_points(spans: list[Received]) -> None:
    names = {span.id: named(span) for span in spans}
    assert {(named(span), names.get(span.parent, span.parent)) for span in spans} == {
        (SUBMISSION, ""),
        *((stage, SUBMISSION) for stage in STAGES),
        *((f"replica.start {name}", "job.launch") for name in REPLICAS),
        *((f"replica.register {name}", f"replica.start {name}") for name in REPLICAS),
        *((f"replica.first_point {name}", f"replica.register {name}") for name in REPLICAS if "trainer" in name),
    }


def test_each_span_of_the_trace_is_sent_once(spans: list[Received]) -> None:
    assert len({span.id for span in spans}) == len(spans)
    assert len({span.trace for span in spans}) == 1


def test_the_stages_of_a_job_end_in_their_order(spans: list[Received]) -> None:
    ends = {span.name: span.end for span in spans}
    assert sorted(STAGES, key=ends.__getitem__) == list(STAGES)


def test_spans_name_the_service_that_did_the_work(spans: list[Received]) -> None:
    services = {(span.name.partition(".")[0], span.service) for span in spans}
    assert {(SUBMISSION, "regatta-web"), ("replica", "regatta-agent")} <= services
    assert {service for kind, service in services if kind == "job"} <= {"regatta-worker", "regatta-sweep"}


def test_the_collector_gets_the_headers_of_the_setting(collector: Collector, spans: list[Received]) -> None:
    assert {headers["authorization"] for headers in collector.headers} == {"Bearer collector-key"}
    assert collector.paths == {"/v1/traces"}


def test_no_span_names_a_person_or_an_address(spans: list[Received]) -> None:
    assert [word for word in ("admin", "127.0.0.1") if word in str(spans)] == []


def test_log_lines_about_a_job_name_its_trace(monitored: RunningPortal, job: Job, spans: list[Received]) -> None:
    about = [line for line in lines_of(monitored, "web") if line.get("trace_id") == spans[0].trace]
    assert {"api-jobs", "ingest-report", "ingest-metrics"} <= {line["route"] for line in about}
    assert {line["job"] for line in about if line.get("job")} == {job.id}


def test_user_code_can_continue_the_trace(monitored: RunningPortal, job: Job, spans: list[Received]) -> None:
    (launch,) = [span for span in spans if span.name == "job.launch"]
    with monitored.client() as portal:
        printed = [line.text for line in portal.jobs.logs.read(job.id)]
    assert f"00-{launch.trace}-{launch.id}-01" in printed


def test_the_metrics_count_the_spans(monitored: RunningPortal, operations: int, spans: list[Received]) -> None:
    pages = [httpx.get(f"http://127.0.0.1:{operations + offset}/metrics", timeout=20).text for offset in range(3)]
    counts = [line for page in pages for line in page.splitlines() if line.startswith("regatta_spans_")]
    exported = sum(float(line.split()[1]) for line in counts if "exported" in line)
    assert exported == len(spans)
    assert [line for line in counts if "dropped" in line] == []
