"""Changes that people and agents request, each in one transaction."""
