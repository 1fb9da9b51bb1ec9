"""Code shared by parameter servers and trainers: declaration, sharding, optimisers, tables, messages."""
