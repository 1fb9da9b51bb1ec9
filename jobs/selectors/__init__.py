"""Queries of jobs and attempts. Nothing is written here."""
