"""Rows E: scaling policies in the simulation."""
