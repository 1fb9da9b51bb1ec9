"""Workloads from files: jobs and services as CSV, the cluster as JSON. Pure, except for reading the files.

Jobs: ``time,name,min,max,cpu,memory,gpu,duration,priority`` (or ``work`` in trainer-seconds instead of ``duration``, or
both), and optionally ``namespace``, ``replicas`` (trainers that it is submitted with), ``servers``, ``server_cpu``,
``server_memory``, ``scaling``. Services:
``time,name,replicas,cpu,memory,priority``; each line is the demand of a service from that time on. Cluster:
``{"nodes": [{"name": "a", "count": 4, "cpu": 16, "memory": "64Gi", "gpu": 4, "taints": ["x"]}]}``.

Invalid input raises ``ValueError`` with a message that names the file, the line and what to write.
"""

from __future__ import annotations

import csv
import json
import math
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, TypeVar

from jobs.elastic.policy.model import Amounts, Core, Job, Node, Service
from jobs.elastic.simulation.workload import Arrival, Demand, Workload
from jobs.spec.quantities import cores, memory, span

_JOB_COLUMNS = ("time", "name", "min", "max", "cpu", "memory")
_SERVICE_COLUMNS = ("time", "name", "replicas", "cpu", "memory")
_MOST_NODES, _MEGABYTE = 100_000, 10**6
T = TypeVar("T")


def workload(jobs: Path, services: Path | None, cluster: Path, until: float | None) -> Workload:
    """Read a workload from files. Without ``until`` the simulation lasts until all jobs have ended."""
    arrivals = sorted((_arrival(row) for row in _rows(jobs, _JOB_COLUMNS)), key=lambda each: each.at)
    names = [arrival.job.key for arrival in arrivals]
    if len(set(names)) < len(names):
        raise ValueError(f"{jobs}: two jobs have the same name. Give every job its own.")
    if until is None and any(arrival.work is None and arrival.duration is None for arrival in arrivals):
        raise ValueError(f"{jobs}: a job without duration or work never ends. Say with --until how long to simulate.")
    there, demands = _services(services) if services is not None else ([], [])
    length = math.inf if until is None else until
    return Workload(_nodes(cluster), arrivals, there, demands, length, length, until_done=until is None)


def _rows(path: Path, columns: tuple[str, ...]) -> Iterator[_Row]:
    with path.open(newline="", encoding="utf-8") as file:
        reader = csv.DictReader(file, strict=True)
        missing = [column for column in columns if column not in (reader.fieldnames or ())]
        if missing:
            raise ValueError(f"{path}: the first line has no {', '.join(missing)}. Begin with {','.join(columns)}.")
        for row in reader:
            yield _Row(path, reader.line_num, {key: (value or "").strip() for key, value in row.items() if key})


class _Row:
    """One line of a file. Errors name the file and the line."""

    def __init__(self, path: Path, line: int, values: Mapping[str, str]) -> None:
        self._path, self._line, self._values = path, line, values

    def text(self, column: str) -> str:
        if not self._values.get(column):
            raise self.error(f"{column} is empty.")
        return self._values[column]

    def get(self, column: str, read: Callable[[str], T], otherwise: T | None = None) -> T:
        if otherwise is not None and not self._values.get(column):
            return otherwise
        text = self.text(column)
        try:
            return read(text)
        except ValueError as error:
            raise self.error(f"{column}: {error}") from error

    def error(self, problem: str) -> ValueError:
        return ValueError(f"{self._path}, line {self._line}: {problem}")

    def given(self, column: str) -> bool:
        return bool(self._values.get(column))


def _arrival(row: _Row) -> Arrival:
    least, most = row.get("min", _count), row.get("max", _count)
    if not 1 <= least <= most:
        raise row.error("min has to be at least 1 and at most max.")
    need = Amounts(row.get("cpu", _cpu), row.get("memory", _memory), row.get("gpu", _count, 0))
    server = Amounts(row.get("server_cpu", _cpu, 0), row.get("server_memory", _memory, 0))
    job = Job(
        row.text("name"),
        least,
        most,
        need,
        Core(server=server, servers=row.get("servers", _count, 0)),
        namespace=row.get("namespace", str, ""),
        priority=row.get("priority", int, 0),
        first=row.get("replicas", _count, 0),
    )
    return Arrival(
        row.get("time", _seconds),
        job,
        work=row.get("work", _seconds) if row.given("work") else None,
        duration=row.get("duration", _seconds) if row.given("duration") else None,
        scaling=row.get("scaling", _seconds, 0.0),
    )


def _services(path: Path) -> tuple[list[Service], list[Demand]]:
    """Read services and their demands. Services without a line at time 0 begin with no replicas."""
    services: dict[str, Service] = {}
    demands = []
    for row in _rows(path, _SERVICE_COLUMNS):
        at, name, wanted = row.get("time", _seconds), row.text("name"), row.get("replicas", _count)
        need = Amounts(row.get("cpu", _cpu), row.get("memory", _memory))
        known = services.setdefault(name, Service(name, need, 0, priority=row.get("priority", int, 10)))
        if at == 0:
            services[name] = Service(name, known.need, wanted, priority=known.priority)
        else:
            demands.append(Demand(at, name, wanted))
    return list(services.values()), demands


def _nodes(path: Path) -> list[Node]:
    try:
        nodes = [node for entry in json.loads(path.read_text(encoding="utf-8"))["nodes"] for node in _alike(entry)]
    except (KeyError, TypeError, AttributeError, ValueError) as error:
        example = '{"nodes": [{"name": "a", "count": 4, "cpu": 16, "memory": "64Gi", "gpu": 0}]}'
        raise ValueError(f"{path}: {error!s:.200} is no description of nodes. Write it like {example}.") from error
    if len({node.name for node in nodes}) < len(nodes) or not nodes:
        raise ValueError(f"{path}: name at least one node, and every kind of node differently.")
    return nodes


def _alike(entry: Mapping[str, Any]) -> Iterator[Node]:
    """Yield the ``count`` nodes of one entry."""
    count = _count(str(entry.get("count", 1)))
    if count > _MOST_NODES:
        raise ValueError(f"count {count}")
    there = Amounts(_cpu(entry["cpu"]), _memory(entry["memory"]), _count(str(entry.get("gpu", 0))))
    for number in range(count):
        yield Node(f"{entry['name']}-{number}", there, frozenset(map(str, entry.get("taints", ()))))


def _count(text: str) -> int:
    if not text.isdecimal() or len(text) > 9:
        raise ValueError(f"{text[:40]} is no number. Write one such as 4.")
    return int(text)


def _seconds(text: str) -> float:
    try:
        return span(text).total_seconds()
    except ValueError:
        raise ValueError(f"{text[:40]} is no number of seconds. Write one such as 90.") from None


def _cpu(text: object) -> int:
    return round(cores(text) * 1000)


def _memory(text: object) -> int:
    return -(-memory(text) // _MEGABYTE)
