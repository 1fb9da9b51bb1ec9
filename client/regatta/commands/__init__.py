"""Commands of ``regatta``, one module per subject."""
