"""The master of a job: it hands out tasks and decides when a pass ends.

``queue`` is the pure machine, on top of ``board`` (where every task stands), ``dealing`` (whose turn it is) and
``blame`` (what becomes of a failed one); ``state`` holds their values. ``ledger`` keeps it in the coordination store,
``server`` puts it on the wire.
"""
