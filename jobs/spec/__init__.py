"""Job specifications: table of fields, model, parser, validators, and the syntax check of Python files. Pure."""
