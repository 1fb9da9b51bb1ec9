"""What nodes say of pods, where it has to be known word by word. Pure."""

from __future__ import annotations

CONFIG_ERROR = "CreateContainerConfigError"


def no_config_map(name: str) -> str:
    """What a container with this reason waits for while a ConfigMap is not there. By that of their job its pods wait
    for one another: it is made once each has an address, and what a node said before stays until it looks again."""
    return f'configmap "{name}" not found'
