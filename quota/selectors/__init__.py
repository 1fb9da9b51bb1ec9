"""Queries for limits, holdings, usage and the queues of namespaces.

The package offers the queries of its modules as ``quota.selectors.NAME``.
"""

from quota.selectors.decisions import (
    Bounds,
    Decision,
    Prospect,
    behind,
    bounds_of,
    decide,
    decide_again,
    if_alone,
    is_far_behind,
    preview,
    prospect,
    verdict_on,
)
from quota.selectors.holdings import (
    Holders,
    QuotaView,
    holders,
    kept_by_kind,
    largest_kept,
    overheld,
    quota_of,
    recall_of,
    recalls,
    reserved_in,
)
from quota.selectors.limits import borrowing_of, capacity, limits_of
from quota.selectors.overview import namespace_overview, quota_requests
from quota.selectors.policy_state import Held, Key, state
from quota.selectors.queues import MOST_WAITERS, Queue, Waiter, claimed, claims_of, queue_of, whole_queue
from quota.selectors.usage_history import MOST_USAGE_ROWS, HeldSeries, Usage, Use, added, held_over_time, usage, uses

__all__ = [
    "MOST_USAGE_ROWS",
    "MOST_WAITERS",
    "Bounds",
    "Decision",
    "Held",
    "HeldSeries",
    "Holders",
    "Key",
    "Prospect",
    "Queue",
    "QuotaView",
    "Usage",
    "Use",
    "Waiter",
    "added",
    "behind",
    "borrowing_of",
    "bounds_of",
    "capacity",
    "claimed",
    "claims_of",
    "decide",
    "decide_again",
    "held_over_time",
    "holders",
    "if_alone",
    "is_far_behind",
    "kept_by_kind",
    "largest_kept",
    "limits_of",
    "namespace_overview",
    "overheld",
    "preview",
    "prospect",
    "queue_of",
    "quota_of",
    "quota_requests",
    "recall_of",
    "recalls",
    "reserved_in",
    "state",
    "usage",
    "uses",
    "verdict_on",
    "whole_queue",
]
