"""The queue of a job's tasks: which trainer gets which task, and what becomes of it. Pure."""
