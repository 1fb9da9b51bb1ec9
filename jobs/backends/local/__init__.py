"""The backend that runs replicas as processes of this machine."""
