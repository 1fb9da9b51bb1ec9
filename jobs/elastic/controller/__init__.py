"""The elastic controller: observes the cluster, asks the policy, applies its decisions."""
