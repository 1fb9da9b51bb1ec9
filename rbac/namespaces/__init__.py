"""Invitations to namespaces, and the signal that a namespace is closing."""
