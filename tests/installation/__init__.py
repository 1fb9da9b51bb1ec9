"""A whole installation on the cluster of KUBECONFIG, by the commands in ``docs/operations.md``.

The servers that the page takes from public registries (PostgreSQL, Redis, etcd, an ingress controller, Prometheus) are
images made from the Debian packages of this machine.
"""
