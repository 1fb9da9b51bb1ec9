"""The arithmetic of updates: in NumPy, and compiled by numba if it is installed."""
