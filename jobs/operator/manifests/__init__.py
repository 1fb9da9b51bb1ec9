"""The child objects of a PaddleJob, as JSON for the API server. Pure."""
