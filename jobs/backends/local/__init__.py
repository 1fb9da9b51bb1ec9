"""Backend that runs replicas as processes of this machine."""
