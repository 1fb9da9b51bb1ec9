"""What the controller does next for a PaddleJob, and its status. Pure."""
