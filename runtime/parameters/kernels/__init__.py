"""Arithmetic of updates: in NumPy, and compiled by numba where it is installed."""
