"""Rows E: policies in the simulation."""
