"""Uploads: parts, their staging and their verification."""
