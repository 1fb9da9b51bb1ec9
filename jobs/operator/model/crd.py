"""The CustomResourceDefinition of a PaddleJob: its schema, printer columns and subresources. Pure.

Every field of paddle-operator 0.3.5 is present with its type. Bounds and enumerations are only as tight as its
manifests allow; ``spec.read`` checks constraints that a schema of Kubernetes 1.20 cannot express. The API server drops
fields that are not in the schema. ``deploy/kubernetes/crd.yaml`` is the output of ``manifest()``.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import yaml

from jobs.operator.model import names
from jobs.operator.model.conditions import Phase
from jobs.operator.model.failure_policy import Verdict
from jobs.operator.model.spec import CLEAN_POD_POLICIES, Intranet, Mode

Schema = dict[str, Any]

_STRING: Schema = {"type": "string"}
_BOOLEAN: Schema = {"type": "boolean"}
_TIME: Schema = {"type": "string", "format": "date-time", "nullable": True}
_DECIMAL = r"(([0-9]+(\.[0-9]*)?)|(\.[0-9]+))"
_QUANTITY: Schema = {
    "anyOf": [{"type": "integer"}, {"type": "string"}],
    "pattern": rf"^(\+|-)?{_DECIMAL}(([KMGTPE]i)|[numkMGTPE]|([eE](\+|-)?{_DECIMAL}))?$",
    "x-kubernetes-int-or-string": True,
}
_FREE: Schema = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}


def manifest() -> dict[str, Any]:
    """Return the CustomResourceDefinition to apply to a cluster."""
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{names.PLURAL}.{names.GROUP}"},
        "spec": {
            "group": names.GROUP,
            "scope": "Namespaced",
            "names": {
                "kind": names.KIND,
                "listKind": f"{names.KIND}List",
                "plural": names.PLURAL,
                "singular": "paddlejob",
                "shortNames": ["pdj"],
            },
            "versions": [
                {
                    "name": names.VERSION,
                    "served": True,
                    "storage": True,
                    "schema": {"openAPIV3Schema": schema()},
                    "additionalPrinterColumns": _columns(),
                    "subresources": {
                        "status": {},
                        "scale": {
                            "specReplicasPath": ".spec.worker.replicas",
                            "statusReplicasPath": ".status.worker.replicas",
                            "labelSelectorPath": ".status.selector",
                        },
                    },
                }
            ],
        },
    }


def text() -> str:
    """Return the manifest as YAML."""
    return "# Written by: python -m jobs.operator crd\n" + yaml.dump(
        manifest(), Dumper=_WithoutAliases, sort_keys=False, width=110
    )


class _WithoutAliases(yaml.SafeDumper):
    def ignore_aliases(self, data: object) -> bool:
        return True


def schema() -> Schema:
    return _object(
        {"apiVersion": _STRING, "kind": _STRING, "metadata": {"type": "object"}, "spec": _spec(), "status": _status()}
    )


def _columns() -> list[dict[str, Any]]:
    return [
        {"name": "Status", "type": "string", "jsonPath": ".status.phase"},
        {"name": "Mode", "type": "string", "jsonPath": ".status.mode"},
        {"name": "Workers", "type": "integer", "jsonPath": ".status.worker.running"},
        {"name": "Restarts", "type": "integer", "jsonPath": ".status.restarts"},
        {"name": "Reason", "type": "string", "jsonPath": ".status.reason"},
        {"name": "Message", "type": "string", "jsonPath": ".status.message", "priority": 1},
        {"name": "Age", "type": "date", "jsonPath": ".metadata.creationTimestamp"},
    ]


def _spec() -> Schema:
    return _object(
        {
            "cleanPodPolicy": _enum(
                CLEAN_POD_POLICIES, "Finished pods that are deleted after the end of the job. Default: OnCompletion."
            ),
            "intranet": _enum(("", *Intranet), "Address by which pods reach each other. Default: PodIP."),
            "withGloo": _integer(
                0, 2, "Pods that get the rendezvous address of gloo. 1: workers; 2: all pods; 0: none. Default: 0."
            ),
            "elastic": _integer(
                0, 2, "Fault-tolerance level of the trainers. With it, the number of workers may change."
            ),
            **{role: _role(role) for role in names.ROLES},
            "schedulingPolicy": _object(
                {
                    "minAvailable": _integer(
                        1, None, "Number of pods that start together or not at all. Default: all."
                    ),
                    "queue": _STRING,
                    "priorityClass": _STRING,
                    "minResources": {"type": "object", "additionalProperties": _QUANTITY},
                    "timeoutSeconds": _number(
                        "Seconds for which some pods may hold nodes while others find none. After it all pods are "
                        "deleted and the job tries again later. 0: no limit."
                    ),
                }
            ),
            "runPolicy": _run_policy(),
            "starts": {
                "type": "object",
                "additionalProperties": _integer(1, None),
                "description": "Maximum number of pods for each place, such as worker-0, over time. Default: 1. With "
                "this field a pod is replaced only after its number was raised, and no failure ends the job.",
            },
            "maxStarts": {
                "type": "object",
                "additionalProperties": _integer(1, None),
                "description": "With starts: maximum number of pods for each place up to which the controller replaces "
                "a lost pod itself if starts is not raised in time. Default: none.",
            },
            "successPolicy": _object(
                {
                    "roles": {"type": "array", "items": _enum(names.ROLES)},
                    "operator": _enum(("All", "Any"), "Whether all pods of the roles must succeed, or any."),
                },
                "Pods that must succeed so that the job succeeds. Default: all workers.",
            ),
            "failurePolicy": _object(
                {
                    "rules": {
                        "type": "array",
                        "items": _rule(),
                        "description": "The first rule that matches a failed pod applies.",
                    }
                }
            ),
        }
    )


def _run_policy() -> Schema:
    return _object(
        {
            "suspend": {**_BOOLEAN, "description": "While true, the job has no pods. Afterwards it starts again."},
            "activeDeadlineSeconds": _number("Maximum run time in seconds. After it the job fails."),
            "ttlSecondsAfterFinished": _number("Seconds from the end of the job until it is deleted."),
            "backoffLimit": _integer(
                0, None, "Number of failures that lead to a restart. Without it, the first failed pod ends the job."
            ),
            "stallTimeoutSeconds": _number(
                f"Seconds without a change of the annotation {names.PROGRESS_ANNOTATION} that count as a failure."
            ),
            "managedBy": {
                **_STRING,
                "description": f"Name of the controller of the job. {names.CONTROLLER} ignores jobs with another name.",
            },
            "queue": _STRING,
            "priority": {"anyOf": [{"type": "integer"}, {"type": "string"}], "x-kubernetes-int-or-string": True},
        }
    )


def _rule() -> Schema:
    rule = _object(
        {
            "roles": {"type": "array", "items": _enum(names.ROLES)},
            "exitCodes": {
                "type": "array",
                "items": {"anyOf": [{"type": "integer"}, {"type": "string"}], "x-kubernetes-int-or-string": True},
                "description": "Exit codes such as 137, and ranges such as 128-255.",
            },
            "reasons": {"type": "array", "items": _STRING, "description": "Reasons of Kubernetes, such as OOMKilled."},
            "action": _enum(
                Verdict, "Fail: the job fails. Restart: counts as a failure. RestartIgnoreLimit: does not count."
            ),
        }
    )
    return {**rule, "required": ["action"]}


def _role(name: str) -> Schema:
    role = _object(
        {
            "replicas": _integer(1, None, "Desired number of pods."),
            "requests": _integer(0, None, "Minimum number of pods with which the job continues. 0: all. Default: 0."),
            "limits": _integer(0, None, "Maximum number of pods. 0: replicas. Default: 0."),
            "template": _template(),
        }
    )
    return {**role, "required": ["replicas"], "description": f"Pods of the role {names.TRAINING_ROLES[name]}."}


def _template() -> Schema:
    containers = {
        "type": "array",
        "minItems": 1,
        "items": {**_FREE, "required": ["name"], "properties": {"name": _STRING}},
    }
    # The API server validates pods when they are created; the schema requires only the shape of a pod.
    pod = {**_FREE, "required": ["containers"], "properties": {"containers": containers}}
    return {"type": "object", "properties": {"metadata": _FREE, "spec": pod}}


def _status() -> Schema:
    return _object(
        {
            "phase": _enum(Phase),
            "mode": _enum(Mode),
            **{role: _role_status() for role in names.ROLES},
            "startTime": _TIME,
            "completionTime": _TIME,
            "observedGeneration": {"type": "integer", "format": "int64"},
            "elastic": _STRING,
            "selector": _STRING,
            "reason": _STRING,
            "message": _STRING,
            "attempt": _integer(0, None, "Number of times that all pods started together."),
            "restarts": _integer(0, None, "Number of failures that led to a restart."),
            "releases": _integer(0, None, "Number of times that all pods were deleted because some found no node."),
            "counted": {"type": "array", "items": _STRING, "description": "UIDs of failed pods that were counted."},
            "notBefore": {**_TIME, "description": "Time before which no pods are created."},
            "holdingSince": {**_TIME, "description": "Time since which some pods hold nodes while others find none."},
            "progress": _object({"value": _STRING, "since": _TIME}),
            "starts": {"type": "object", "additionalProperties": {"type": "integer"}},
            "grantedStarts": {
                "type": "object",
                "additionalProperties": {"type": "integer"},
                "description": "Starts within spec.maxStarts that the controller has used for lost pods.",
            },
            "lostSince": {
                "type": "object",
                "additionalProperties": _TIME,
                "description": "Since when places have lost their pod.",
            },
            "conditions": {
                "type": "array",
                "items": {
                    **_object(dict.fromkeys(("type", "status", "reason", "message", "lastTransitionTime"), _STRING)),
                    "required": ["type", "status"],
                },
                "x-kubernetes-list-type": "map",
                "x-kubernetes-list-map-keys": ["type"],
            },
        }
    )


def _role_status() -> Schema:
    counts = ("replicas", "pending", "starting", "running", "failed", "succeeded", "unknown")
    return _object({**{key: {"type": "integer"} for key in counts}, "refs": {"type": "array", "items": _FREE}})


def _object(properties: dict[str, Schema], description: str = "") -> Schema:
    return _described({"type": "object", "properties": properties}, description)


def _enum(values: Iterable[str], description: str = "") -> Schema:
    return _described({"type": "string", "enum": [str(value) for value in values]}, description)


def _integer(least: int, most: int | None, description: str = "") -> Schema:
    bounds = {"minimum": least} if most is None else {"minimum": least, "maximum": most}
    return _described({"type": "integer", "format": "int32", **bounds}, description)


def _number(description: str) -> Schema:
    return _described({"type": "integer", "format": "int64", "minimum": 0}, description)


def _described(body: Schema, description: str) -> Schema:
    return {**body, "description": description} if description else body
