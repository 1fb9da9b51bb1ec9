"""Watching a job from a notebook or program: the view, the callback, and the end of the job.

``regatta.job`` uses this package, which therefore imports neither it nor ``regatta.notebook`` nor ``regatta.api``.
"""
