"""Amounts that the jobs of each namespace with a limit may still take. Pure."""

from __future__ import annotations

from jobs.elastic.policy import fair_share
from jobs.elastic.policy.model import Amounts, Cluster


class NamespaceLimits:
    """The remainder of each limit once stopping replicas are gone. It is negative where a limit is exceeded.

    Namespaces without a limit, and None (the claim of no namespace), are unlimited.
    """

    def __init__(self, cluster: Cluster) -> None:
        self.remaining = {namespace: list(limit) for namespace, limit in cluster.limits.items()}
        for job in cluster.jobs:
            if job.started is not None and job.namespace in self.remaining:
                self.take(job.namespace, job.trainer.times(job.size).plus(fair_share.fixed(job)))

    def allow(self, namespace: str | None, need: Amounts) -> bool:
        """Whether a namespace may take ``need`` more."""
        left = None if namespace is None else self.remaining.get(namespace)
        return left is None or all(amount <= there or not amount for amount, there in zip(need, left, strict=True))

    def take(self, namespace: str | None, need: Amounts) -> None:
        self._add(namespace, need, -1)

    def give_back(self, namespace: str | None, need: Amounts) -> None:
        self._add(namespace, need, 1)

    def _add(self, namespace: str | None, need: Amounts, sign: int) -> None:
        left = None if namespace is None else self.remaining.get(namespace)
        if left is not None:
            left[:] = [there + sign * amount for there, amount in zip(left, need, strict=True)]
