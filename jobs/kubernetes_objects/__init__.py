"""What the objects of a cluster say by themselves, for whoever has them before it. Pure; it asks no cluster."""
