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

The parts are known: dominant resource fairness (``fair_share.py``, ``growth.py``), gang scheduling with backfilling
(``gang_admission.py``), best fit (``placement.py``) and preemption by priority (``preemption.py``).

The algorithm terminates: a placement takes capacity, trainers stop only down to a floor, and the changes for a gang
that does not fit are undone once.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable
from itertools import pairwise

from jobs.elastic.policy import explanations, growth
from jobs.elastic.policy.allocation import Allocation, first_victim
from jobs.elastic.policy.gang_admission import GangAdmission
from jobs.elastic.policy.model import Cluster, Decision, Launch, Service
from jobs.elastic.policy.parameters import RULES, Rules
from jobs.elastic.policy.preemption import ANY, GENTLE, Claim, Preemptor
from jobs.elastic.policy.working_state import JobState

__all__ = ["RULES", "Rules", "decide", "headroom"]


def decide(cluster: Cluster, now: float, rules: Rules = RULES) -> Decision:
    """Return the decision for this moment."""
    allocation = Allocation(cluster, now, rules)
    preemptor = Preemptor(allocation)
    admission = GangAdmission(allocation, preemptor)
    _shrink_to_bounds(allocation)
    _resolve_overcommitment(allocation)
    _claim_for_services(allocation, preemptor)
    _restore_least(allocation, preemptor)
    admission.admit()
    _claim_headroom(allocation, preemptor)
    growth.grow(allocation)
    growth.even_out(allocation, preemptor, admission.gangs)
    return _decision(allocation, admission)


# --- 0. Jobs above their bounds, overcommitted nodes and namespaces ---
def _shrink_to_bounds(allocation: Allocation) -> None:
    for state in allocation.jobs:
        job = state.job
        allowed = job.most if state.recent_change > 0 else state.useful
        while state.size > max(allowed, job.least) and state.by_node:
            allocation.stop(state, state.fullest_node(), "")


def _resolve_overcommitment(allocation: Allocation) -> None:
    for node in allocation.free_capacity.nodes:
        while min(node.soon) < 0 and (victim := _overgrown(node.jobs)) is not None:
            allocation.stop(victim, node, explanations.OTHERS)
    for namespace, left in allocation.remaining_limits.remaining.items():
        while min(left) < 0 and (victim := _overgrown(allocation.of_namespace(namespace))) is not None:
            allocation.stop(victim, victim.fullest_node(), "")
    allocation.transaction.commit()


def _overgrown(states: Iterable[JobState]) -> JobState | None:
    """Return the job that gives up a trainer beyond those that it was submitted with."""
    return first_victim(
        state for state in states if state.by_node and state.size > max(state.job.least, state.job.first)
    )


# --- 1. Services ---
def _claim_for_services(allocation: Allocation, preemptor: Preemptor) -> None:
    for service in sorted(allocation.services, key=lambda each: (-each.priority, each.key)):
        claim = Claim(f"`{service.key}`", service.priority)
        shape, missing = (service.need, service.tolerates), service.missing
        missing -= len(preemptor.claim(shape, missing, GENTLE, claim))
        for state in preemptor.stoppable_for_service(service.priority) if missing else ():
            allocation.preempt(state, claim.beneficiary)
            missing -= len(preemptor.claim(shape, missing, ANY, claim))
            if missing <= 0:
                break
        allocation.transaction.commit()


# --- 2. Jobs below their least ---
def _restore_least(allocation: Allocation, preemptor: Preemptor) -> None:
    """Give jobs their least back. They come before newcomers, because they still hold their other replicas."""
    for state in allocation.jobs:
        job = state.job
        if job.started is not None and state not in allocation.preempted and state.target < job.least:
            claim = Claim(f"`{job.key}`", namespace=job.namespace)
            for node in preemptor.claim(state.shape, job.least - state.target, GENTLE, claim):
                allocation.start(state, node)
    allocation.transaction.commit()


# --- 3. Headroom ---
def _claim_headroom(allocation: Allocation, preemptor: Preemptor) -> None:
    for service in allocation.services:
        count = headroom(service, allocation.now, allocation.rules)
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
def _decision(allocation: Allocation, admission: GangAdmission) -> Decision:
    launches = {
        state.job.key: Launch(
            tuple(node.name for node in gang.masters),
            tuple(node.name for node in gang.servers),
            (*(node.name for node in gang.trainers), *Counter(allocation.grants.get(state, {})).elements()),
        )
        for state, gang in admission.gangs.items()
        if gang.begins
    }
    return Decision(
        targets={state.job.key: state.target for state in allocation.jobs},
        launches=launches,
        grants={s.job.key: by_node for s, by_node in allocation.grants.items() if s not in admission.gangs},
        victims={
            state.job.key: {node.name: state.victims[node] for node in sorted(state.victims, key=lambda at: at.number)}
            for state in allocation.jobs
            if state.victims and state not in allocation.preempted
        },
        preempted={state.job.key: beneficiary.strip("`") for state, beneficiary in allocation.preempted.items()},
        messages={state.job.key: _message(allocation, admission, state) for state in allocation.jobs},
    )


def _message(allocation: Allocation, admission: GangAdmission, state: JobState) -> str:
    size, target = state.job.size, state.target
    gang = admission.gangs.get(state)
    if state in admission.reasons:
        return admission.reasons[state]
    if gang is not None:
        return (
            explanations.starts(target - state.planned)
            if gang.begins
            else explanations.capacity_is_freed(gang.stopping)
        )
    if state in allocation.preempted:
        return explanations.stops(allocation.preempted[state])
    if state.victims:
        beneficiary = max(sorted(state.stopped_for), key=lambda each: state.stopped_for[each])
        return explanations.shrinks(size, target, beneficiary) if beneficiary else explanations.bounded(size, target)
    if state in allocation.grants:
        return explanations.grows(size, size + sum(allocation.grants[state].values()))
    return explanations.will_grow(size, target) if state.planned else _why_it_stays(state)


def _why_it_stays(state: JobState) -> str:
    target = state.target
    if target >= state.job.most:
        return explanations.full(target)
    if target >= state.useful:
        return explanations.useless(target)
    return explanations.resting(target) if state.recent_change < 0 else explanations.cramped(target)
