"""Print a Pod that runs one command of the portal, from a Deployment of the portal on standard input.

kubectl -n regatta-system get deployment portal-sweep --output=json |
  python3 deploy/command_pod.py after_restore | kubectl create -f -

It has the settings, volumes and service account of the Deployment, and works while that has no replicas. Needs Python
only.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from typing import Any


def pod(deployment: Mapping[str, Any], arguments: Sequence[str]) -> dict[str, Any]:
    """Return the Pod. Its name is that of the command."""
    spec = {name: value for name, value in deployment["spec"]["template"]["spec"].items() if name != "initContainers"}
    container = {name: value for name, value in spec["containers"][0].items() if "Probe" not in name}
    container |= {"name": "command", "command": ["python3", "manage.py", *arguments], "args": []}
    metadata = {"name": arguments[0].replace("_", "-"), "namespace": deployment["metadata"]["namespace"]}
    # The labels by which the network policies admit the pod to the servers.
    metadata["labels"] = deployment["spec"]["template"]["metadata"]["labels"]
    spec |= {"containers": [container], "restartPolicy": "Never"}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}


if __name__ == "__main__":
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    print(json.dumps(pod(json.load(sys.stdin), sys.argv[1:]), indent=2))  # noqa: T201
