"""Baseline: discretised two-dimensional least attained service, as in Tiresias. Pure.

After J. Gu et al., "Tiresias: A GPU Cluster Manager for Distributed Deep Learning", NSDI 2019, section 3.2.2. The
attained service of a job is its number of trainers times their running time. Below ``THRESHOLD`` it is in the first
queue, from then on in the second. The first queue goes before the second, and each is ordered by arrival. From the
front, jobs run as long as they fit, each with its submitted number of trainers. All other running jobs are preempted,
without loss of work. The paper's promotion of starving jobs is off, as in its evaluation of mean completion times.
Priorities, namespaces and their limits are not supported.
"""

from __future__ import annotations

from jobs.elastic.baselines import paddle_edl
from jobs.elastic.policy.model import Amounts, Cluster, Decision, Job, total

# Trainer-seconds of the first queue: 16 GPU-hours, as in the simulation of AdaptDL (OSDI 2021) on 64 GPUs.
THRESHOLD = 16 * 3600.0


def tiresias(cluster: Cluster, now: float, threshold: float = THRESHOLD) -> Decision:
    """Return the decision for the next period. The choice of nodes is left to the scheduler of the cluster."""
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
    """Return the number of trainers that a job was submitted with. It neither grows nor shrinks."""
    return job.first or job.most


def demand(job: Job) -> Amounts:
    others = (job.core.master, job.core.server.times(job.core.servers))
    return total((job.trainer.times(trainers(job)), *others))
