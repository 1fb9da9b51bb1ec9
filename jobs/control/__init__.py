"""The portal's end of the control channel to the agents of running replicas (``runtime.control``)."""
