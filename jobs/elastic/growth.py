"""Who grows into what is left, and who gives up what others lack of their fair share. Pure."""

from __future__ import annotations

import heapq
import math

from jobs.elastic.making_room import Claim, Level, RoomMaker
from jobs.elastic.standing import Standing


def grow(standing: Standing) -> None:
    """One trainer at a time, always for the job with the smallest share; of equal ones for the eldest."""
    room, jobs, cost = standing.room, standing.jobs, standing.cost
    room.exact = False
    growing = [index for index in range(len(jobs)) if standing.may_grow(index)]
    growing.sort(key=lambda index: jobs[index].submitted)
    # By their place in this order, so that what the heap compares is short.
    heap = [(standing.share(index), place) for place, index in enumerate(growing)]
    heapq.heapify(heap)
    limited = bool(standing.left)
    while heap:
        index = growing[heap[0][1]]
        job = jobs[index]
        allowed = not limited or standing.allowed(job.namespace, job.trainer)
        number = room.place(standing.shape[index]) if allowed else -1
        if number < 0:
            heapq.heappop(heap)
            continue
        if limited:
            standing.count(job.namespace, job.trainer, -1)
        standing.give(index, number)
        height = standing.height[index]
        if height < standing.most[index]:
            heapq.heapreplace(heap, (height * cost[index], heap[0][1]))
        else:
            heapq.heappop(heap)


def even_out(standing: Standing, maker: RoomMaker, newcomers: frozenset[int]) -> None:
    """What is fair now is measured by what there is room for: on real nodes it is less than their sum."""
    calm = [
        index
        for index in range(len(standing.jobs))
        if index not in newcomers and standing.may_grow(index) and not standing.recently(index, 1)
    ]
    if not calm:
        return
    standing.fair = standing.fair_of(standing.in_use())
    for index in sorted(calm, key=lambda each: (standing.share(each), each)):
        lacking = math.floor(standing.fair[index]) - standing.height[index]
        if lacking > max(1.0, standing.rules.slack * standing.fair[index]):
            above = (standing.height[index] + lacking) * standing.cost[index]
            whom, namespace = "jobs that have less than their share", standing.jobs[index].namespace
            claim = Claim(whom, above=above, namespace=namespace)
            promised = len(maker.claim(standing.shape[index], lacking, (Level.SLACK,), claim))
            standing.planned[index] += promised
            standing.height[index] += promised
