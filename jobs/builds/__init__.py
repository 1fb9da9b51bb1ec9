"""Builds of what a backend launches from a code snapshot: a local bundle or an image."""
