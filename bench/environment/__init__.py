"""Servers, processes and browsers for measurements."""
