"""States, reasons and transitions of a job, and the evaluation of its replicas. Pure."""
