"""Scaling policy: the number of trainers of every job, the jobs that begin, and the jobs that free capacity. Pure.

All steps place replicas on nodes, never beyond the capacity of a node or the limit of a namespace, in this order:

0. Jobs above their bounds shrink to them. Where more is taken than exists (other components admitted it, or a node or
   limit has become smaller), jobs give up the trainers that they have grown by.
1. Services of higher priority get capacity for their missing replicas.
2. Jobs that have lost trainers get their least back. Newcomers get their least, all of its replicas at once or none (a
   gang), in the order of their age; a priority is a head start in age. Capacity comes first from free nodes, then from
   jobs above their fair share, then from jobs above their least. A job stops whole only for a newcomer of its own
   namespace and of higher priority, if it has run for ``Rules.shortest_run``, began before the newcomer came, and would
   come after it in the same order had it waited since it began. So no job stops twice for the same newcomer. Later
   newcomers pass one that does not fit as long as they leave enough for it once all jobs before it have ended, and none
   passes it after ``Rules.patience``. So no job starves as long as jobs end.
3. Services that have grown recently get *headroom*: capacity for a fraction of that growth, before they need it.
4. Jobs grow into the free capacity, one trainer at a time, always the job with the smallest share (``fair_share.py``),
   never above ``most`` or above the number that was measured to be useful.
5. Where a job lacks more than ``Rules.slack`` of its fair share, and more than one trainer, jobs above theirs give up
   trainers for it.

A job that shrank within ``Rules.cool_down`` does not grow. One that grew within it shrinks only in steps 0 to 3, and
step 5 takes from neither. So jobs do not oscillate. Capacity that becomes free only once something has stopped is
reserved for the job or service that it was freed for.

More nodes of the same kind never make a job wait longer while all jobs request the same. With replicas of several sizes
they can, as in every bin packing, because another job may then begin first.

The algorithm terminates: a placement takes capacity, trainers stop only down to a floor, and the changes for a gang
that does not fit are undone once.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable
from itertools import pairwise

from jobs.elastic.policy import explanations, growth
from jobs.elastic.policy.allocation import Standing
from jobs.elastic.policy.gang_admission import Newcomers
from jobs.elastic.policy.model import Cluster, Decision, Launch, Service
from jobs.elastic.policy.parameters import RULES, Rules
from jobs.elastic.policy.preemption import ANY, GENTLE, Claim, Preemptor

__all__ = ["RULES", "Rules", "decide", "headroom"]


def decide(cluster: Cluster, now: float, rules: Rules = RULES) -> Decision:
    """Return the decision for this moment."""
    standing = Standing(cluster, now, rules)
    preemptor = Preemptor(standing)
    newcomers = Newcomers(standing, preemptor)
    _keep_bounds(standing)
    _relieve(standing)
    _serve(standing, preemptor)
    _restore(standing, preemptor)
    newcomers.launch()
    _keep_headroom(standing, preemptor)
    growth.grow(standing)
    growth.even_out(standing, preemptor, frozenset(newcomers.gangs))
    return _decision(standing, newcomers)


# --- 0. Jobs above their bounds, overcommitted nodes and namespaces ---
def _keep_bounds(standing: Standing) -> None:
    for index, job in enumerate(standing.jobs):
        allowed = job.most if standing.recently(index, 1) else standing.most[index]
        while standing.size[index] > max(allowed, job.least) and standing.stay[index]:
            standing.stop(index, standing.anywhere(index), "")


def _relieve(standing: Standing) -> None:
    for number, free in enumerate(standing.free_capacity.soon):
        while min(free) < 0 and (index := _overgrown(standing, standing.on_node[number])) >= 0:
            standing.stop(index, number, explanations.OTHERS)
    for namespace, left in standing.left.items():
        while min(left) < 0 and (index := _overgrown(standing, standing.of(namespace))) >= 0:
            standing.stop(index, standing.anywhere(index), "")
    standing.undo.clear()


def _overgrown(standing: Standing, indices: Iterable[int]) -> int:
    """Return the job that gives up a trainer beyond those that it was submitted with. -1: none."""
    jobs = standing.jobs
    return standing.first_to_give(
        i for i in indices if standing.stay[i] and standing.size[i] > max(jobs[i].least, jobs[i].first)
    )


# --- 1. Services ---
def _serve(standing: Standing, preemptor: Preemptor) -> None:
    for service in sorted(standing.services, key=lambda each: (-each.priority, each.key)):
        claim = Claim(f"`{service.key}`", service.priority)
        shape, missing = (service.need, service.tolerates), service.missing
        missing -= len(preemptor.claim(shape, missing, GENTLE, claim))
        for index in preemptor.stoppable_for_service(service.priority) if missing else ():
            standing.preempt(index, claim.beneficiary)
            missing -= len(preemptor.claim(shape, missing, ANY, claim))
            if missing <= 0:
                break
        standing.undo.clear()


# --- 2. Jobs below their least ---
def _restore(standing: Standing, preemptor: Preemptor) -> None:
    """Give jobs their least back. They come before newcomers, because they still hold their other replicas."""
    for index, job in enumerate(standing.jobs):
        if job.started is not None and index not in standing.preempted and standing.height[index] < job.least:
            missing = job.least - standing.height[index]
            claim = Claim(f"`{job.key}`", namespace=job.namespace)
            for number in preemptor.claim(standing.shape[index], missing, GENTLE, claim):
                standing.give(index, number)


# --- 3. Headroom ---
def _keep_headroom(standing: Standing, preemptor: Preemptor) -> None:
    for service in standing.services:
        count = headroom(service, standing.now, standing.rules)
        claim = Claim(f"`{service.key}`", service.priority)
        preemptor.claim((service.need, service.tolerates), count, GENTLE, claim)


def headroom(service: Service, now: float, rules: Rules) -> int:
    """Return the number of further replicas to reserve capacity for: a fraction of the largest recent growth."""
    rises = [0]
    for (_, before), (at, after) in pairwise(service.history):
        if now - at <= rules.headroom_for:
            rises.append(after - before)
    return math.ceil(rules.headroom * max(rises))


# --- The result ---
def _decision(standing: Standing, newcomers: Newcomers) -> Decision:
    names, jobs = standing.free_capacity.names, standing.jobs
    launches = {
        jobs[index].key: Launch(
            tuple(names[number] for number in gang.masters),
            tuple(names[number] for number in gang.servers),
            (*(names[number] for number in gang.trainers), *Counter(standing.grants.get(index, {})).elements()),
        )
        for index, gang in newcomers.gangs.items()
        if gang.begins
    }
    return Decision(
        targets={job.key: height for job, height in zip(jobs, standing.height, strict=True)},
        launches=launches,
        grants={jobs[index].key: by_node for index, by_node in standing.grants.items() if index not in newcomers.gangs},
        victims={
            jobs[index].key: {names[number]: count for number, count in sorted(by_node.items())}
            for index, by_node in sorted(standing.victims.items())
            if by_node and index not in standing.preempted
        },
        preempted={jobs[index].key: beneficiary.strip("`") for index, beneficiary in standing.preempted.items()},
        messages={job.key: _message(standing, newcomers, index) for index, job in enumerate(jobs)},
    )


def _message(standing: Standing, newcomers: Newcomers, index: int) -> str:
    job, height, planned = standing.jobs[index], standing.height[index], standing.planned[index]
    gang = newcomers.gangs.get(index)
    if index in newcomers.reasons:
        return newcomers.reasons[index]
    if gang is not None:
        return explanations.starts(height - planned) if gang.begins else explanations.capacity_is_freed(gang.stopping)
    if index in standing.preempted:
        return explanations.stops(standing.preempted[index])
    if standing.victims.get(index):
        given = standing.given[index]
        beneficiary = max(sorted(given), key=lambda each: given[each])
        return (
            explanations.shrinks(job.size, height, beneficiary)
            if beneficiary
            else explanations.bounded(job.size, height)
        )
    if index in standing.grants:
        return explanations.grows(job.size, job.size + sum(standing.grants[index].values()))
    return explanations.will_grow(job.size, height) if planned else _why_it_stays(standing, index)


def _why_it_stays(standing: Standing, index: int) -> str:
    height = standing.height[index]
    if height >= standing.jobs[index].most:
        return explanations.full(height)
    if height >= standing.most[index]:
        return explanations.useless(height)
    return explanations.resting(height) if standing.recently(index, -1) else explanations.cramped(height)
