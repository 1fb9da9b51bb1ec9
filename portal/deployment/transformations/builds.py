"""Settings of jobs: their registry, builds, nodes, and e-mail and sign-up of the people who submit them."""

from __future__ import annotations

import json

from portal.deployment.objects import Object, Objects, changed, containers_of, is_of_portal, pod_of
from portal.deployment.transformations.environment import with_secret_variables, with_settings
from portal.deployment.transformations.images import image_of
from portal.deployment.values import Values, unless_default

_VOLUME = "registry"
_CREDENTIALS = ("REGATTA_REGISTRY_CREDENTIALS", "REGATTA_KUBERNETES_PULL_CREDENTIALS", "REGATTA_BUILD_SECRET")


def registry(objects: Objects, values: Values) -> Objects:
    """Set the registry for images of jobs."""
    insecure = "1" if values["registry.insecure"] else None
    return with_settings(
        objects, {"REGATTA_REGISTRY": values["registry.address"], "REGATTA_REGISTRY_INSECURE": insecure}
    )


def registry_credentials(objects: Objects, values: Values) -> Objects:
    """Name the Secret with the registry's credentials, or drop its volume and its settings."""
    secret = values["registry.existingSecret"]
    if not secret:
        return with_settings(_without_volume(objects), dict.fromkeys(_CREDENTIALS))

    def rename(workload: Object) -> None:
        for volume in pod_of(workload)["volumes"]:
            if volume["name"] == _VOLUME:
                volume["secret"]["secretName"] = secret

    return with_settings(changed(objects, is_of_portal, rename), {"REGATTA_BUILD_SECRET": secret})


def _without_volume(objects: Objects) -> Objects:
    def drop(workload: Object) -> None:
        pod = pod_of(workload)
        pod["volumes"] = [volume for volume in pod["volumes"] if volume["name"] != _VOLUME]
        for container in containers_of(workload):
            container["volumeMounts"] = [mount for mount in container["volumeMounts"] if mount["name"] != _VOLUME]

    return changed(objects, is_of_portal, drop)


def builds(objects: Objects, values: Values) -> Objects:
    """Set the base image and the package index of builds. The tools come from the portal's image."""
    settings = {
        "REGATTA_BUILD_TOOLS_IMAGE": image_of("image", values),
        "REGATTA_BASE_IMAGE": unless_default(values, "builds.baseImage"),
        "PIP_INDEX_URL": values["builds.packageIndex"] or None,
        "PIP_TRUSTED_HOST": values["builds.trustedHost"] or None,
    }
    return with_settings(objects, settings)


def jobs(objects: Objects, values: Values) -> Objects:
    """Select the nodes of jobs, and the resource that counts as a GPU."""
    fields = ("nodeSelector", "tolerations", "affinity")
    placement = {name: values[f"jobs.{name}"] for name in fields if values[f"jobs.{name}"]}
    settings = {
        "REGATTA_KUBERNETES_PLACEMENT": json.dumps(placement, sort_keys=True) if placement else None,
        "REGATTA_KUBERNETES_GPU": unless_default(values, "jobs.gpuResource"),
    }
    return with_settings(objects, settings)


def accounts(objects: Objects, values: Values) -> Objects:
    """Set who can create an account, and the mail server for confirmations."""
    given = {
        "REGATTA_SIGN_UP": values["signUp"],
        "REGATTA_MAIL_FROM": unless_default(values, "mail.from"),
    }
    with_sender = with_settings(objects, given)
    if not values["mail.existingSecret"]:
        return with_sender
    keys = {"REGATTA_MAIL_SERVER": values["mail.existingSecretKey"]}
    return with_secret_variables(with_sender, values["mail.existingSecret"], keys)
