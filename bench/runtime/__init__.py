"""Rows R: the runtime compared with gloo, torch and plain links."""
