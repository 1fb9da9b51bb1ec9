"""Faults of an installation on a cluster, one after the other under one running job, printed as a table.

``make test-faults`` runs it. docs/operations.md, section Faults, says what each does to the portal and to jobs.
"""
