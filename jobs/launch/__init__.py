"""Launch plans of attempts, their accounts in etcd, and their namespaces on a cluster."""
