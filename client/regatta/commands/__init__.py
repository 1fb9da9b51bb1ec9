"""The commands of ``regatta``, a file a subject."""
