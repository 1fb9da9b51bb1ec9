"""One headless service for each pod: it has the pod's name, which resolves even before the pod is ready."""

from __future__ import annotations

from typing import Any

from jobs.operator.manifests.owner import owned
from jobs.operator.model import names
from jobs.operator.model.spec import PaddleJob


def service(job: PaddleJob, name: str) -> dict[str, Any]:
    """Return the service of the pod ``name``."""
    ports = [
        {"name": f"p-{offset}", "port": names.PORT + offset, "targetPort": names.PORT + offset, "protocol": "TCP"}
        for offset in range(names.PORTS)
    ]
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": owned(job, name),
        "spec": {
            "clusterIP": "None",
            "publishNotReadyAddresses": True,
            "selector": {names.RESOURCE_NAME_LABEL: name},
            "ports": ports,
        },
    }
