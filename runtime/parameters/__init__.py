"""What parameter servers and trainers share: declaration, sharding, optimisers, tables, messages."""
