"""Kubernetes namespaces for the portal's namespaces: their objects and their synchronisation."""
