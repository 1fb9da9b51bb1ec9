"""Published policies that ours is compared with. Pure."""
