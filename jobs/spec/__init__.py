"""The job specification: its parser, quantities and the syntax check of Python files. Pure."""
