"""The Kubernetes namespaces of the portal's namespaces: their objects and their synchronisation."""
