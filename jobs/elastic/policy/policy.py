"""How many trainers every job has, who begins and who makes room. Pure.

Decided in this order, and everything on real nodes, never above what a node has, nor a namespace above its limit:

0. Who is above its bounds gives up what is too much. Where more is taken than there is (others let it in, or a node or
   a limit has become smaller), jobs give up what they have grown by.
1. Services of higher priority get room for the replicas that they miss.
2. Jobs that have lost trainers get their least back. Newcomers get their least, all replicas of it at once or none (a
   gang), in the order of their age; a priority is a head start in age. Room comes from what is free, then from jobs
   above their fair share, then from jobs above their least. Only a job of the same namespace and lower priority stops
   whole, which has run for a while, began before the newcomer came, and would come after it in the same order if it
   waited since it began: so nobody stops for the same newcomer twice. Who does not fit is passed by later ones as long
   as they leave enough for it once all before it have ended, and by nobody after ``Rules.patience``: so nobody starves
   as long as jobs end.
3. Services that have grown lately get *head-room*: room for a part of as many replicas again, before they ask.
4. Jobs grow into what is left, one trainer at a time, always the job with the smallest share (``fair_share.py``), never
   above ``most`` nor above the number that was measured to be of use.
5. Where a job lacks more than a little of its fair share, those who have more than theirs give it up.

Who shrank within ``Rules.cool_down`` does not grow, who grew within it does not shrink but for 0 to 3, and 5
leaves both alone: nobody goes up and down in a circle. Room that comes free only when something has stopped is kept for
whom it was made for.

More nodes of the same kind never make a job wait longer while all jobs ask for the same; with replicas of several sizes
they can, as with every packing: another job may then begin first.

It ends: a placement takes room, trainers stop only down to a floor, and what was done for a gang that does not fit is
undone once.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable
from itertools import pairwise

from jobs.elastic.policy import growth, messages
from jobs.elastic.policy.allocation import Standing
from jobs.elastic.policy.gang_admission import Newcomers
from jobs.elastic.policy.model import Cluster, Decision, Launch, Service
from jobs.elastic.policy.parameters import RULES, Rules
from jobs.elastic.policy.preemption import ANY, GENTLE, Claim, Preemptor

__all__ = ["RULES", "Rules", "decide", "headroom"]


def decide(cluster: Cluster, now: float, rules: Rules = RULES) -> Decision:
    """The decision of this moment."""
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


# --- 0. What is above its bounds, and what is more than there is ---
def _keep_bounds(standing: Standing) -> None:
    for index, job in enumerate(standing.jobs):
        allowed = job.most if standing.recently(index, 1) else standing.most[index]
        while standing.size[index] > max(allowed, job.least) and standing.stay[index]:
            standing.stop(index, standing.anywhere(index), "")


def _relieve(standing: Standing) -> None:
    for number, free in enumerate(standing.free_capacity.soon):
        while min(free) < 0 and (index := _overgrown(standing, standing.on_node[number])) >= 0:
            standing.stop(index, number, messages.OTHERS)
    for namespace, left in standing.left.items():
        while min(left) < 0 and (index := _overgrown(standing, standing.of(namespace))) >= 0:
            standing.stop(index, standing.anywhere(index), "")
    standing.undo.clear()


def _overgrown(standing: Standing, indices: Iterable[int]) -> int:
    """Which of the jobs gives up a trainer that it was not submitted with. -1: none."""
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


# --- 2. Who lacks its least ---
def _restore(standing: Standing, preemptor: Preemptor) -> None:
    """Jobs that have lost trainers come before newcomers: they hold what else they began with."""
    for index, job in enumerate(standing.jobs):
        if job.started is not None and index not in standing.preempted and standing.height[index] < job.least:
            missing = job.least - standing.height[index]
            claim = Claim(f"`{job.key}`", namespace=job.namespace)
            for number in preemptor.claim(standing.shape[index], missing, GENTLE, claim):
                standing.give(index, number)


# --- 3. Head-room ---
def _keep_headroom(standing: Standing, preemptor: Preemptor) -> None:
    for service in standing.services:
        count = headroom(service, standing.now, standing.rules)
        claim = Claim(f"`{service.key}`", service.priority)
        preemptor.claim((service.need, service.tolerates), count, GENTLE, claim)


def headroom(service: Service, now: float, rules: Rules) -> int:
    """For how many replicas more room is kept: a part of its largest growth of late."""
    rises = [0]
    for (_, before), (at, after) in pairwise(service.history):
        if now - at <= rules.headroom_for:
            rises.append(after - before)
    return math.ceil(rules.headroom * max(rises))


# --- What comes of it ---
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
        return messages.starts(height - planned) if gang.begins else messages.capacity_is_freed(gang.stopping)
    if index in standing.preempted:
        return messages.stops(standing.preempted[index])
    if standing.victims.get(index):
        given = standing.given[index]
        beneficiary = max(sorted(given), key=lambda each: given[each])
        return messages.shrinks(job.size, height, beneficiary) if beneficiary else messages.bounded(job.size, height)
    if index in standing.grants:
        return messages.grows(job.size, job.size + sum(standing.grants[index].values()))
    return messages.will_grow(job.size, height) if planned else _why_it_stays(standing, index)


def _why_it_stays(standing: Standing, index: int) -> str:
    height = standing.height[index]
    if height >= standing.jobs[index].most:
        return messages.full(height)
    if height >= standing.most[index]:
        return messages.useless(height)
    return messages.resting(height) if standing.recently(index, -1) else messages.cramped(height)
