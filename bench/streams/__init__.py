"""Rows S: metrics and logs, from a process to the page."""
