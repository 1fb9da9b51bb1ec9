"""Transformations of the objects of ``deploy/kubernetes`` by values.

Each is a pure function, and finds what it changes by kind, name and labels.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import reduce

from portal.deployment.objects import Objects
from portal.deployment.transformations import access, builds, environment, images, processes, servers, storage
from portal.deployment.values import Values

Transformation = Callable[[Objects, Values], Objects]

# In this order: servers are dropped after their fields are set, and the checksum covers all settings.
ALL: tuple[Transformation, ...] = (
    images.images,
    images.pull_policy,
    images.pull_secrets,
    processes.replicas,
    processes.autoscaling,
    processes.resources,
    processes.placement,
    processes.api_versions,
    access.host_names,
    access.ingress,
    access.ingress_controller,
    access.prometheus,
    builds.registry,
    builds.registry_credentials,
    builds.builds,
    builds.jobs,
    builds.accounts,
    storage.portal_volume,
    storage.server_volumes,
    storage.bucket,
    storage.checkpoints,
    servers.server_secrets,
    environment.existing_secret,
    environment.extra_secrets,
    servers.external_servers,
    environment.traces,
    environment.further_settings,
    environment.checksum,
)


def transformed(objects: Objects, values: Values) -> Objects:
    """Return the objects of an installation."""
    return reduce(lambda found, transformation: transformation(found, values), ALL, objects)
