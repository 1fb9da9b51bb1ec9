"""Invitations to namespaces, and the signal of their closing."""
