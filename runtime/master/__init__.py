"""The master of a job: it hands out tasks and decides when a pass ends.

``queue`` is pure, ``ledger`` keeps its state in the coordination store, ``server`` puts both on the wire.
"""
