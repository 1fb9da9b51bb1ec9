"""The HTTP API of datasets and uploads."""
