"""The pod of one replica: the job's template, with the additions of paddle-operator's contract."""

from __future__ import annotations

import copy
from typing import Any

from jobs.frameworks import paddle
from jobs.kubernetes_objects import pod_names
from jobs.operator.manifests.owner import owned
from jobs.operator.model import names
from jobs.operator.model.pod_options import PodOptions
from jobs.operator.model.spec import Intranet, PaddleJob, Role


def pod(
    job: PaddleJob, role: Role, index: int, attempt: int, options: PodOptions, start_number: int | None = None
) -> dict[str, Any]:
    """Return pod ``index`` of a role; the template is not modified. ``start_number``: None where it is not counted."""
    name = pod_names.pod_name(job.name, role.name, index)
    template = copy.deepcopy(dict(role.template))
    spec: dict[str, Any] = dict(template.get("spec") or {})
    spec |= {"hostname": name, "subdomain": name, "restartPolicy": restart_policy(job, role)}
    if job.intranet is Intranet.HOST:
        # Without this policy the pod would use the node's resolver, which does not resolve services.
        spec |= {"hostNetwork": True, "dnsPolicy": "ClusterFirstWithHostNet"}
    spec["containers"] = [_container(job, role, index, name, container) for container in spec["containers"]]
    if job.intranet is Intranet.SERVICE:
        first = spec["containers"][0]
        first["ports"] = [*(first.get("ports") or ()), {"containerPort": names.PORT}]
    if options.init_image:
        spec["initContainers"] = [*(spec.get("initContainers") or ()), _coordination(job, role, options.init_image)]
    if options.volcano:
        spec["schedulerName"] = names.VOLCANO
    metadata = _metadata(job, role, index, attempt, options)
    if start_number is not None:
        metadata["labels"][names.START_NUMBER_LABEL] = str(start_number)
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}


def restart_policy(job: PaddleJob, role: Role) -> str:
    """Return the restart policy of the pod's containers: the template's, unless the job is elastic."""
    if job.elastic is not None:
        return "OnFailure"
    stated = (role.template.get("spec") or {}).get("restartPolicy")
    if stated:
        return str(stated)
    return "OnFailure" if role.name == names.WORKER and job.intranet is Intranet.SERVICE else "Never"


def _metadata(job: PaddleJob, role: Role, index: int, attempt: int, options: PodOptions) -> dict[str, Any]:
    name = pod_names.pod_name(job.name, role.name, index)
    stated = role.template.get("metadata") or {}
    labels = {
        **(stated.get("labels") or {}),
        names.RESOURCE_NAME_LABEL: name,
        names.RESOURCE_TYPE_LABEL: role.name,
        names.JOB_LABEL: job.name,
        names.ROLE_LABEL: role.name,
        names.INDEX_LABEL: str(index),
        names.ATTEMPT_LABEL: str(attempt),
    }
    annotations = {**(stated.get("annotations") or {}), names.RESOURCE_ANNOTATION: role.name}
    if options.volcano:
        annotations |= {
            "scheduling.k8s.io/group-name": job.name,
            "volcano.sh/task-spec": role.name,
            "volcano.sh/job-name": job.name,
            "volcano.sh/job-version": str(job.generation),
            "volcano.sh/queue-name": job.scheduling.queue,
        }
    return owned(job, name, labels, annotations)


def _container(job: PaddleJob, role: Role, index: int, name: str, container: Any) -> dict[str, Any]:
    """Return the container with the controller's variables after its own: Kubernetes uses the last value of a name."""
    stated = dict(container)
    stated["env"] = [*(stated.get("env") or ()), *_environment(job, role, index, name)]
    if job.elastic is None:
        # A job with a master gets the members from it, and need not wait for the ConfigMap.
        reference = {"name": job.name, "optional": True} if names.MASTER in job.roles else {"name": job.name}
        stated["envFrom"] = [*(stated.get("envFrom") or ()), {"configMapRef": reference}]
    return stated


def _environment(job: PaddleJob, role: Role, index: int, name: str) -> list[dict[str, Any]]:
    by_name = job.intranet is Intranet.SERVICE
    own: dict[str, Any] = {"value": name} if by_name else {"valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}}
    variables = paddle.own_environment(names.TRAINING_ROLES[role.name], index)
    if job.elastic is not None:
        variables |= {
            "PADDLE_ELASTIC_JOB_ID": f"{job.namespace}-{job.name}",
            "PADDLE_ELASTIC_NP": elastic_range(job),
            "PADDLE_ELASTIC_TIMEOUT": "60",
        }
    return [{"name": "POD_IP", **own}, *({"name": key, "value": value} for key, value in variables.items())]


def elastic_range(job: PaddleJob) -> str:
    """Return the number of workers for Paddle's elastic trainers: ``3``, or ``2:4`` where the job has bounds."""
    worker = job.roles[names.WORKER]
    return str(worker.replicas) if worker.least == worker.most else f"{worker.least}:{worker.most}"


def _coordination(job: PaddleJob, role: Role, image: str) -> dict[str, Any]:
    hosts = " ".join(f'"{pod_names.pod_name(job.name, role.name, index)}"' for index in range(role.replicas))
    script = (
        f"for h in {hosts}; do for i in $(seq 1000); do echo check $i; if nslookup $h; then break; fi; "
        "if [ $i -eq 1000 ]; then exit 1; fi; sleep 1; done; done; sleep 2"
    )
    return {
        "name": names.COORDINATION_CONTAINER,
        "image": image,
        "imagePullPolicy": "IfNotPresent",
        "command": ["sh", "-c", script],
        # Limits as well: a namespace with a quota on limits refuses pods without limits.
        "resources": {"requests": {"cpu": "10m", "memory": "10Mi"}, "limits": {"cpu": "100m", "memory": "32Mi"}},
    }
