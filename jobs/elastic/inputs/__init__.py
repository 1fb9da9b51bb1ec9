"""From observed pods and their usage to the input of the policy. Pure."""
