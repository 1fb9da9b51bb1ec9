"""States, reasons and transitions of a job, and what observations of its replicas mean. Pure."""
