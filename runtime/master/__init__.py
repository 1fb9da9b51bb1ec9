"""The master of a job: it hands out tasks and decides when a pass ends.

``task_queue`` is the pure state machine. It is built on ``task_states`` (the state of every task), ``assignment``
(which trainer gets which task) and ``failure_attribution`` (what happens to a failed task); ``types`` holds their
values. ``queue_store`` keeps the queue in the coordination store, ``server`` serves it over the network.
"""
