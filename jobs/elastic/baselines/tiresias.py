"""A baseline: discretised two-dimensional least attained service, as Tiresias has it. Pure.

After J. Gu et al., "Tiresias: A GPU Cluster Manager for Distributed Deep Learning", NSDI 2019, section 3.2.2. What a
job has had so far is its number of trainers times the time that they ran. Below ``THRESHOLD`` it is in the first queue,
from then on in the second; the first goes before the second, and within one whoever came first goes first. From the
front, jobs run as long as there is room, each with the number of trainers that it was submitted with; whoever runs and
is not among them is called back, and loses nothing. The paper's promotion of those that starve is off, as in its
evaluation of mean completion times; priorities, namespaces and their limits it does not know.
"""

from __future__ import annotations

from jobs.elastic.baselines import paddle_edl
from jobs.elastic.policy.model import Amounts, Cluster, Decision, Job, total

# Trainer-seconds of the first queue: 16 GPU-hours, with which others simulate it on 64 GPUs (AdaptDL, OSDI 2021).
THRESHOLD = 16 * 3600.0


def tiresias(cluster: Cluster, now: float, threshold: float = THRESHOLD) -> Decision:
    """Who runs in the next period. Nodes are left to the scheduler of the cluster."""
    chosen: set[str] = set()
    left = paddle_edl.for_jobs(cluster)
    for job in sorted(cluster.jobs, key=lambda each: (each.attained >= threshold, each.submitted, each.key)):
        after = left.minus(demand(job))
        if min(after) >= 0:
            left = after
            chosen.add(job.key)
    waiting = [job for job in cluster.jobs if job.started is None and job.key in chosen]
    return Decision(
        targets={job.key: trainers(job) if job.key in chosen else 0 for job in cluster.jobs},
        launches={job.key: paddle_edl.launch(job, trainers(job)) for job in waiting},
        preempted={job.key: "" for job in cluster.jobs if job.started is not None and job.key not in chosen},
    )


def trainers(job: Job) -> int:
    """What it was submitted with; it neither grows nor shrinks."""
    return job.first or job.most


def demand(job: Job) -> Amounts:
    others = (job.core.master, job.core.server.times(job.core.servers))
    return total((job.trainer.times(trainers(job)), *others))
