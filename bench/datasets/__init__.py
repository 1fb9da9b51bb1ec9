"""Rows D: reading, uploading and waiting for data."""
