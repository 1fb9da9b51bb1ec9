"""The backend that runs replicas as pods, by a PaddleJob for each attempt."""
