"""Coordination gateway: a proxy of etcd's gRPC API for the agents of jobs.

It passes the calls that an attempt needs, for keys and leases of that attempt, and holds no account of its own: etcd
checks each request again with the attempt's token. docs/decisions/0041 gives the reasons.
"""
