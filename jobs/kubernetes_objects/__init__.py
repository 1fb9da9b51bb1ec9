"""Facts read from Kubernetes objects, for the operator, the backends and the autoscaler. Pure: it sends no request."""
