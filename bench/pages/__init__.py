"""Rows P and X: the portal's pages and API."""
