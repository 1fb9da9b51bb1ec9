"""Usage of a cluster by others than jobs over time. The leading elastic controller records it.

Nothing is recorded while no controller observes the cluster.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta

from django.db import transaction
from django.db.models import Q

from jobs.elastic.controller import leader_lease
from jobs.models import Elastic, Neighbour

# The interval at which the usage of pods without a service is recorded, because they come and go all the time.
EVERY = timedelta(seconds=10)
# Older records are removed; no page shows them.
KEPT_FOR = timedelta(days=8)


@transaction.atomic
def record(term: leader_lease.Term, cores: float, taken: Mapping[str, float], now: datetime) -> None:
    """Record the cores that others take from now on: by service, and all other pods together under the empty key.

    ``cores``: the cores of all nodes. Does nothing if the term is over.
    """
    if not leader_lease.holds(term, now):
        return
    Elastic.objects.exclude(cores=cores).update(cores=cores)
    there = {row.key: row for row in Neighbour.objects.filter(ended=None)}
    gone = [row.pk for key, row in there.items() if taken.get(key, 0) != row.cores]
    Neighbour.objects.filter(pk__in=gone).update(ended=now)
    fresh = [key for key, amount in taken.items() if amount and (key not in there or there[key].pk in gone)]
    Neighbour.objects.bulk_create(Neighbour(key=key, cores=taken[key], begun=now) for key in fresh)
    if gone:
        Neighbour.objects.filter(ended__lt=now - KEPT_FOR).delete()


def end_all(now: datetime) -> None:
    """End all open records, because no controller observes the cluster any more."""
    Neighbour.objects.filter(ended=None).update(ended=now)


def over_time(moments: Sequence[datetime]) -> list[tuple[str, list[float]]]:
    """Return the cores taken at the moments (in order), by key of the service, the largest sum first."""
    rows = Neighbour.objects.filter(Q(ended=None) | Q(ended__gt=moments[0]), begun__lte=moments[-1])
    found: dict[str, list[float]] = {}
    for key, cores, begun, ended in rows.values_list("key", "cores", "begun", "ended").iterator():
        amounts = found.setdefault(key, [0.0] * len(moments))
        for at in range(bisect_left(moments, begun), len(moments) if ended is None else bisect_left(moments, ended)):
            amounts[at] += cores
    return sorted(found.items(), key=lambda each: (-sum(each[1]), each[0]))
