"""The exchange of a trainer with parameter servers."""
