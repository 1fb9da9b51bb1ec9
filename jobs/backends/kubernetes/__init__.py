"""Backend that runs replicas as pods, with one PaddleJob per attempt."""
