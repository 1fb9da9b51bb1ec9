"""Servers, processes and browsers that rows are measured with."""
