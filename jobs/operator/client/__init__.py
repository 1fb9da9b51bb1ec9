"""JSON client of the API server: reflectors, cache, work queue, metrics."""
