"""Adapters for other libraries' models as parameters of a job.

Each module imports its library, so import only the one that you use.
"""
