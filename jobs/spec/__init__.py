"""Job specifications: parser, quantities, and the syntax check of Python files. Pure."""
