"""What runs in a trainer's process: parameters, tasks, the job as user code sees it."""
