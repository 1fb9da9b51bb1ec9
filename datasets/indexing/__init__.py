"""Chunk index and previews of a version."""
