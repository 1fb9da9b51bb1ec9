"""Benchmarks by letter: ``python -m bench P``. Each row is printed and written to bench/results."""
