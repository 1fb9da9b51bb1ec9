"""What-if questions: simulation of the present jobs under other settings. Pure.

All jobs start from the beginning, running ones before waiting ones, with the work given in the question. The sizes of
questions and answers are bounded. The caller has to bound the computing time.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from jobs.elastic.baselines import paddle_edl
from jobs.elastic.policy import policy
from jobs.elastic.policy.model import Amounts, Cluster, Core, Job, Node, Policy, total
from jobs.elastic.simulation import scenarios
from jobs.elastic.simulation.metrics import Outcome
from jobs.elastic.simulation.report import figures
from jobs.elastic.simulation.simulator import simulate
from jobs.elastic.simulation.workload import Arrival, Timing, Workload

MOST_JOBS, MOST_NODES = 300, 500
LONGEST = 4 * 3600.0
# The policies that a question may name: the others need the work of a job beforehand.
POLICIES = ("regatta", "published", "fixed")


@dataclass(frozen=True)
class Settings:
    """Settings of a question. ``work``: the seconds that a job takes with its least. ``window``: simulated seconds."""

    policy: str = "regatta"
    cool_down: float = 30.0
    work: float = 1800.0
    window: float = 3600.0


@dataclass(frozen=True)
class Question:
    """A question. ``jobs``: in the order of their arrival, at most ``MOST_JOBS``."""

    nodes: Sequence[Node]
    jobs: Sequence[Job]
    limits: Mapping[str, Amounts]
    settings: Settings

    def with_cores(self, cores: float) -> Question:
        """Return the question with ``cores`` in total, distributed as before over the nodes; 0: unchanged."""
        there = sum(node.allocatable.cpu for node in self.nodes)
        if not cores or not there:
            return self
        part = cores * 1000 / there
        nodes = [
            replace(node, allocatable=node.allocatable._replace(cpu=round(node.allocatable.cpu * part)))
            for node in self.nodes
        ]
        return replace(self, nodes=nodes)

    def to_json(self) -> dict[str, Any]:
        return {
            "nodes": [[node.name, *node.allocatable] for node in self.nodes],
            "jobs": [_job_json(job) for job in self.jobs],
            "limits": {name: list(limit) for name, limit in self.limits.items()},
            "settings": vars(self.settings),
        }

    @classmethod
    def from_json(cls, body: Mapping[str, Any]) -> Question:
        return cls(
            [Node(name, Amounts(*amounts)) for name, *amounts in body["nodes"][:MOST_NODES]],
            [_job(each) for each in body["jobs"][:MOST_JOBS]],
            {name: Amounts(*limit) for name, limit in body["limits"].items()},
            Settings(**body["settings"]),
        )


def question(cluster: Cluster, settings: Settings) -> Question:
    """Return a question about the present cluster. Running jobs come first, then waiting ones, each by age."""
    jobs = sorted(cluster.jobs, key=lambda job: (job.started is None, job.submitted, job.key))
    return Question(
        cluster.nodes, [_as_submitted(job) for job in jobs if job.most][:MOST_JOBS], cluster.limits, settings
    )


def _as_submitted(job: Job) -> Job:
    """Return a job as if it had just been submitted, with the amounts of its replicas other than trainers."""
    core = job.core if job.started is None else Core(master=total(job.held.values()))
    return Job(job.key, job.least, job.most, job.trainer, core, job.namespace, job.priority, first=job.first)


def answer(question: Question) -> dict[str, Any]:
    """Simulate a question. Return the figures, and of each job its wait in seconds and its trainers at the end."""
    outcome = simulate(_workload(question), _policy(question.settings), _timing(question.settings), seed=0)
    return {"figures": figures(outcome), "jobs": [_outcome_of(job.key, outcome) for job in question.jobs]}


def _workload(question: Question) -> Workload:
    window = min(question.settings.window, LONGEST)
    arrivals = [
        # A thousandth of a second apart, so that earlier jobs are older.
        Arrival(0.001 * number, job, work=question.settings.work * job.least)
        for number, job in enumerate(question.jobs)
    ]
    return Workload(question.nodes, arrivals, window=window, until=window, limits=question.limits)


def _policy(settings: Settings) -> Policy:
    if settings.policy == "regatta":
        return partial(policy.decide, rules=policy.Rules(cool_down=settings.cool_down, preempts=False))
    return {"published": paddle_edl.published, "fixed": paddle_edl.fixed}[settings.policy]


def _timing(settings: Settings) -> Timing:
    """Return the timing. Decisions follow every event, so periodic ones may be rare in a long window."""
    timing = scenarios.TIMING
    return replace(timing, interval=max(timing.interval, settings.window / 360))


def _outcome_of(key: str, outcome: Outcome) -> dict[str, Any]:
    return {
        "key": key,
        "wait": round(outcome.waits[key], 1),
        "began": key in outcome.completions or outcome.trainers.get(key, 0) > 0,
        "done": round(outcome.completions[key], 1) if key in outcome.completions else None,
        "trainers": outcome.trainers.get(key, 0),
    }


def _job_json(job: Job) -> dict[str, Any]:
    return {
        "key": job.key,
        "bounds": [job.least, job.most, job.first],
        "trainer": list(job.trainer),
        "master": list(job.core.master),
        "server": list(job.core.server),
        "servers": job.core.servers,
        "namespace": job.namespace,
        "priority": job.priority,
    }


def _job(body: Mapping[str, Any]) -> Job:
    least, most, first = body["bounds"]
    core = Core(Amounts(*body["master"]), Amounts(*body["server"]), body["servers"])
    return Job(
        body["key"],
        least,
        most,
        Amounts(*body["trainer"]),
        core,
        body["namespace"],
        body["priority"],
        first=first,
    )
