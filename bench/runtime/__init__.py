"""Rows R: the runtime beside gloo, torch and plain links."""
