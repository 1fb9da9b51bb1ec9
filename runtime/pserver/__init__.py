"""Parameter servers: blocks of parameters by slot, one shard a server, optimisers that work in place."""
