"""Rules between values: combinations that cannot work are errors, examples that were left in place are warnings."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from portal.deployment.fields import BY_PATH
from portal.deployment.values import Values, is_default

Rule = Callable[[Values], Iterator[str]]
# Paths of servers: their switch, and the fields that count only without them.
_SERVERS = (("postgresql", "externalPostgresql"), ("redis", "externalRedis"), ("etcd", "externalEtcd"))
_EXAMPLES = ("image.registry", "registry.address", "ingress.hosts")


def _servers(values: Values) -> Iterator[str]:
    for server, external in _SERVERS:
        given = [path for path in BY_PATH if path.startswith(f"{external}.") and not is_default(values, path)]
        if values[f"{server}.enabled"] and given:
            yield f"{given[0]} has no effect while {server}.enabled is true."
    if not values["etcd.enabled"] and not values["externalEtcd.servers"]:
        yield "externalEtcd.servers is empty, but etcd.enabled is false. Name the servers for the coordination gateway."


def _autoscaling(values: Values) -> Iterator[str]:
    least, most = values["web.autoscaling.minReplicas"], values["web.autoscaling.maxReplicas"]
    if least > most:
        yield f"web.autoscaling.minReplicas is {least}, more than maxReplicas, {most}."


def _certificates(values: Values) -> Iterator[str]:
    hosts = set(values["ingress.hosts"])
    for item in values["ingress.tls"]:
        for host in sorted(set(item.get("hosts", ())) - hosts):
            yield f"ingress.tls names {host}, which ingress.hosts does not. Add it there, or correct the name."
    if not hosts:
        yield "ingress.hosts is empty. Name at least one host."


def _bucket(values: Values) -> Iterator[str]:
    given = [
        path for path in BY_PATH if path.startswith("s3.") and path != "s3.bucket" and not is_default(values, path)
    ]
    if given and not values["s3.bucket"]:
        yield f"{given[0]} has no effect without s3.bucket."


def _checkpoints(values: Values) -> Iterator[str]:
    if values["checkpoints.nfs.server"] and values["checkpoints.volume"]:
        yield "checkpoints.nfs.server and checkpoints.volume name two volumes. Keep one of them."


def _volume(values: Values) -> Iterator[str]:
    if values["persistence.existingClaim"] and values["persistence.storageClass"]:
        yield "persistence.storageClass has no effect with persistence.existingClaim."


def _traces(values: Values) -> Iterator[str]:
    if values["traces.existingSecret"] and not values["traces.endpoint"]:
        yield "traces.existingSecret has no effect without traces.endpoint."


RULES: tuple[Rule, ...] = (_servers, _autoscaling, _certificates, _bucket, _checkpoints, _volume, _traces)


def problems(values: Values) -> Iterator[str]:
    """Yield each combination of values that cannot work."""
    for rule in RULES:
        yield from rule(values)


def warnings(values: Values) -> Iterator[str]:
    """Yield each value that an installation has to choose and that this one has not."""
    for path in _EXAMPLES:
        if is_default(values, path):
            yield f"{path} has its example value, {values[path]!r}."
    if not values["ingress.trustedProxies"]:
        yield (
            "ingress.trustedProxies is empty: name the addresses of the ingress controller's pods. "
            "Without them, sign-in ends in a loop of redirects to HTTPS."
        )
    registry = values["registry.existingSecret"]
    if registry not in values["image.pullSecrets"] and is_default(values, "image.pullSecrets"):
        yield f"image.pullSecrets is still {values['image.pullSecrets']}, but registry.existingSecret is {registry!r}."
    if values["signUp"] != "closed" and not values["mail.existingSecret"]:
        yield f"mail.existingSecret is empty, but signUp is {values['signUp']}: e-mails with links are only in a log."
    if not values["checkpoints.nfs.server"] and not values["checkpoints.volume"]:
        yield "checkpoints has no volume: a job that loses all processes starts from the beginning."
