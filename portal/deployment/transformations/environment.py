"""Changes of the portal's environment, used by all transformations that set settings."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping

from portal.deployment.objects import Object, Objects, changed, containers_of, is_of_portal, named
from portal.deployment.values import Values

CHECKSUM = "checksum/settings"


def with_settings(objects: Objects, settings: Mapping[str, str | None]) -> Objects:
    """Set settings in the ConfigMap of the portal; None removes one."""

    def set_settings(body: Object) -> None:
        for name, value in settings.items():
            body["data"].pop(name, None)
            if value is not None:
                body["data"][name] = value

    return changed(objects, named("ConfigMap", "portal"), set_settings)


def with_secret_variables(objects: Objects, secret: str, keys: Mapping[str, str]) -> Objects:
    """Read variables of the portal's processes from keys of a Secret. They precede those of `existingSecret`."""

    def add(workload: Object) -> None:
        for container in containers_of(workload):
            container["env"] = [
                *container.get("env", ()),
                *(
                    {"name": name, "valueFrom": {"secretKeyRef": {"name": secret, "key": key}}}
                    for name, key in keys.items()
                ),
            ]

    return changed(objects, is_of_portal, add)


def existing_secret(objects: Objects, values: Values) -> Objects:
    """Name the Secret with the portal's passwords."""

    def rename(workload: Object) -> None:
        for container in containers_of(workload):
            for source in container["envFrom"]:
                if "secretRef" in source:
                    source["secretRef"]["name"] = values["existingSecret"]

    return changed(objects, is_of_portal, rename)


def extra_secrets(objects: Objects, values: Values) -> Objects:
    """Read settings from further Secrets."""
    sources = [{"secretRef": {"name": name}} for name in values["extraSecrets"]]

    def add(workload: Object) -> None:
        for container in containers_of(workload):
            container["envFrom"] = [*container["envFrom"], *sources]

    return changed(objects, is_of_portal, add)


def traces(objects: Objects, values: Values) -> Objects:
    """Set the collector of traces, and read the headers of its requests from a Secret."""
    with_collector = with_settings(objects, {"REGATTA_OTLP_ENDPOINT": values["traces.endpoint"] or None})
    if not values["traces.existingSecret"]:
        return with_collector
    keys = {"REGATTA_OTLP_HEADERS": values["traces.existingSecretKey"]}
    return with_secret_variables(with_collector, values["traces.existingSecret"], keys)


def further_settings(objects: Objects, values: Values) -> Objects:
    return with_settings(objects, values["settings"])


def checksum(objects: Objects, values: Values) -> Objects:
    """Annotate the portal's pods with a checksum of the settings: applying changed settings restarts them."""
    settings = [body["data"] for body in objects if named("ConfigMap", "portal")(body)]
    digest = hashlib.sha256(json.dumps(settings, sort_keys=True).encode()).hexdigest()

    def annotate(workload: Object) -> None:
        metadata = workload["spec"]["template"]["metadata"]
        metadata["annotations"] = {**metadata.get("annotations", {}), CHECKSUM: digest}

    return changed(objects, is_of_portal, annotate)
