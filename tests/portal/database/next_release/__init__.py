"""A release after this one: what a migration may do to large tables, written as scripts/check_migrations.py asks for.

Its models are not needed: the current code runs on its schema, as old processes do during a rolling upgrade.
"""
