"""Code of a trainer's process: parameters, tasks, the job as user code sees it."""
