"""Settings of the portal that follow from values, and the check of those in ``settings``.

A setting has one place in the values file: ``settings`` takes only those that no other value decides.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterator, Mapping, Set

# Settings with a value of their own.
DECIDED: Mapping[str, str] = {
    "REGATTA_ALLOWED_HOSTS": "ingress.hosts",
    "REGATTA_TRUSTED_PROXIES": "ingress.trustedProxies",
    "REGATTA_SIGN_UP": "signUp",
    "REGATTA_REGISTRY": "registry.address",
    "REGATTA_REGISTRY_INSECURE": "registry.insecure",
    "REGATTA_REGISTRY_CREDENTIALS": "registry.existingSecret",
    "REGATTA_KUBERNETES_PULL_CREDENTIALS": "registry.existingSecret",
    "REGATTA_BUILD_SECRET": "registry.existingSecret",
    "REGATTA_BASE_IMAGE": "builds.baseImage",
    "REGATTA_BUILD_TOOLS_IMAGE": "image",
    "PIP_INDEX_URL": "builds.packageIndex",
    "PIP_TRUSTED_HOST": "builds.trustedHost",
    "REGATTA_KUBERNETES_PLACEMENT": "jobs",
    "REGATTA_KUBERNETES_GPU": "jobs.gpuResource",
    "REGATTA_STORAGE": "s3.bucket",
    "REGATTA_S3_ENDPOINT": "s3.endpoint",
    "REGATTA_S3_REGION": "s3.region",
    "REGATTA_KUBERNETES_CHECKPOINTS": "checkpoints",
    "REGATTA_KUBERNETES_CHECKPOINTS_DIR": "checkpoints",
    "REGATTA_CHECKPOINT_SECONDS": "checkpoints.intervalSeconds",
    "REGATTA_MAIL_FROM": "mail.from",
    "REGATTA_OTLP_ENDPOINT": "traces.endpoint",
}
# Settings with a password or key, and the value that names their Secret.
SECRET: Mapping[str, str] = {
    "REGATTA_SECRET_KEY": "existingSecret",
    "REGATTA_SECRET_KEY_FALLBACKS": "extraSecrets",
    "REGATTA_ADMIN_PASSWORD": "existingSecret",
    "REGATTA_DATABASE_URL": "externalPostgresql.existingSecret",
    "REGATTA_DATABASE_PREPARE_URL": "extraSecrets",
    "REGATTA_BROKER_URL": "externalRedis.existingSecret",
    "REGATTA_REDIS_URL": "externalRedis.existingSecret",
    "REGATTA_COORDINATION": "externalEtcd.existingSecret",
    "REGATTA_MAIL_SERVER": "mail.existingSecret",
    "REGATTA_OTLP_HEADERS": "traces.existingSecret",
    "AWS_ACCESS_KEY_ID": "s3.existingSecret",
    "AWS_SECRET_ACCESS_KEY": "s3.existingSecret",
    "AWS_SESSION_TOKEN": "extraSecrets",
    **{f"REGATTA_{name}_SECRET": "extraSecrets" for name in ("OIDC", "GITHUB", "GITLAB", "GOOGLE", "BAIDU")},
}
# Settings that the manifests fix: ports, addresses and paths occur in several objects.
FIXED = frozenset(
    (
        *("REGATTA_DATA_DIR", "REGATTA_HOST", "PORT", "REGATTA_AGENT_PORT", "REGATTA_OPERATIONS_PORT"),
        *("REGATTA_INGEST_URL", "REGATTA_BACKEND", "REGATTA_KUBERNETES_ACCOUNT", "REGATTA_KUBERNETES_CONTROLLER"),
        *("REGATTA_COORDINATION_JOBS", "REGATTA_IMAGE_BUILDER", "REGATTA_BUILD_NAMESPACE"),
    )
)
_OF_OTHERS = re.compile(r"(PIP_[A-Z_]+|AWS_[A-Z_]+|(HTTPS?|NO)_PROXY|SSL_CERT_FILE|REQUESTS_CA_BUNDLE|TZ)")
_SETTING = re.compile(r"[\"'](REGATTA_[A-Z0-9_]+)[\"']")
_WITH_ACCOUNT = re.compile(r"://[^/\s]*@")


def names_in(source: str) -> frozenset[str]:
    """Return the names of the settings that a Python file reads."""
    return frozenset(_SETTING.findall(source))


def problems(given: Mapping[str, str], known: Set[str]) -> Iterator[str]:
    """Yield what is wrong with ``settings`` of a values file. ``known``: the names that the portal reads."""
    for name, value in given.items():
        if problem := _problem(name, value, known):
            yield f"settings.{name}{problem}"


def _problem(name: str, value: str, known: Set[str]) -> str:
    if name in DECIDED:
        return f" is set by {DECIDED[name]}. Write it there."
    if name in FIXED:
        return " cannot be changed: other objects of the manifests have the same value."
    if name in SECRET or _WITH_ACCOUNT.search(value):
        place = SECRET.get(name, "extraSecrets")
        return f" contains a secret. Write it to a Secret, and the name of the Secret to {place}."
    if name in known or _OF_OTHERS.fullmatch(name):
        return ""
    near = difflib.get_close_matches(name, known, n=1)
    return " is no setting of the portal." + (f" Did you mean {near[0]}?" if near else "")
