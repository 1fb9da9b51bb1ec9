"""The operations port of a process: ``/metrics`` for Prometheus and ``/healthz`` for probes."""
