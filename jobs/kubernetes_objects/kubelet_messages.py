"""Messages of the kubelet that the code compares verbatim. Pure."""

from __future__ import annotations

CONFIG_ERROR = "CreateContainerConfigError"


def no_config_map(name: str) -> str:
    """Return the message of a container with reason ``CONFIG_ERROR`` while its ConfigMap does not exist.

    The pods of a job wait for each other by the job's ConfigMap: it is created once each pod has an address. The
    message stays in a pod's status until its node retries.
    """
    return f'configmap "{name}" not found'
