"""Changes that people and agents ask for, each in one transaction."""
