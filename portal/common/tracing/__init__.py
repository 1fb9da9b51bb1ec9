"""OpenTelemetry traces: a request that submits a job, the work on the job, and the start of its replicas.

Only ``otlp`` imports the packages of OpenTelemetry. Without ``REGATTA_OTLP_ENDPOINT`` nothing is recorded, and they are
not imported.
"""
