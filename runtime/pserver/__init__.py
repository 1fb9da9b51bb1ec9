"""Parameter servers: blocks of parameters by slot, one shard per server, optimisers that work in place."""
