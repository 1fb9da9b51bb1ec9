"""JSON client of the API server: reflectors, caches, work queue, metrics."""
