"""Published policies, for comparison with the policy of the platform. Pure."""
