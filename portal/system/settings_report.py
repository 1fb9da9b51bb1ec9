"""The portal's settings for diagnostics: values of settings on a list; of all others, whether they are set."""

from __future__ import annotations

import os
from datetime import timedelta
from typing import Any

from django.conf import settings

# Settings whose values may leave the portal. A new setting is not shown until it is added here.
SHOWN = frozenset(
    {
        *("ALLOWED_HOSTS", "CSRF_TRUSTED_ORIGINS", "DEBUG", "HOST", "HTTPS", "PORT", "TRUSTED_PROXIES"),
        "NOTEBOOK_HOSTS",
        *(
            "CONNECTIONS",
            "CONNECTIONS_PER_ADDRESS",
            "DATABASE_POOL_SIZE",
            "DATA_DIR",
            "STORAGE_DIR",
            "ATTEMPTS_DIR",
            "BROKER_DIR",
        ),
        *("INSTALLED_APPS", "MIDDLEWARE", "SIGN_UP", "ADMIN_SECOND_FACTOR", "EMAIL_BACKEND", "EMAIL_TIMEOUT"),
        *("AXES_FAILURE_LIMIT", "AXES_COOLOFF_TIME", "SIGN_IN_NETWORK_RATE", "SUBMIT_RATE", "UPLOAD_RATE"),
        *("INGEST_RATE", "METRIC_NAMES", "SWEEP_SECONDS", "CLUSTER_BACKEND", "KUBERNETES_PREFIX", "KUBERNETES_GPU"),
        *("KUBERNETES_CPU_BURST", "KUBERNETES_NAMESPACES", "KUBERNETES_CONTROLLER", "KUBERNETES_ACCOUNT"),
        *("KUBERNETES_CHECKPOINTS_DIR", "KUBERNETES_HOMES_DIR", "CLIENT_URL", "OUTAGE_SECONDS"),
        *("LOCAL_ISOLATION", "LOCAL_NETWORK", "LOCAL_DISK_BYTES"),
        *("CHECKPOINT_SECONDS", "KEEP_CHECKPOINTS_DAYS", "KEEP_BUILDS_DAYS", "KEEP_STREAMS_DAYS"),
        *("KEEP_HISTORY_DAYS", "KEEP_USAGE_DAYS", "KEEP_AUDIT_DAYS", "KEEP_DELETED_DATASETS_DAYS"),
        *(
            "KEEP_UPLOADS_DAYS",
            "REGISTRATION_SECONDS",
            "SPARE_STARTS",
            "STOP_GRACE_SECONDS",
            "PREEMPTION_GRACE_SECONDS",
        ),
        *("LOG_CAP_BYTES", "ELASTIC_MODE", "ELASTIC_COOL_DOWN_SECONDS", "IMAGE_BUILDER", "BASE_IMAGE"),
        *("REGISTRY_INSECURE", "BUILD_NAMESPACE", "BUILD_SECONDS", "IMAGE_LIMIT_BYTES", "DEFAULT_QUOTA"),
        *("TRACE_SUBMISSIONS", "TRACE_REQUESTS", "TRACE_FROM_PROXIES", "OTLP_ENDPOINT"),
        *("LANGUAGE_CODE", "TIME_ZONE", "DATABASE_POOL_SIZE"),
    }
)
SET, NOT_SET = "set", "not set"


def report() -> dict[str, Any]:
    """Return the settings by name, the kind of the database, and the names of the variables of the environment."""
    names = [name for name in dir(settings) if name.isupper() and _is_changed(name)]
    return {
        "settings": {name: _shown(name) for name in names},
        "database": settings.DATABASES["default"]["ENGINE"].rpartition(".")[2],
        "environment": sorted(name for name in os.environ if name.startswith("REGATTA_")),
    }


def _is_changed(name: str) -> bool:
    """Return whether the setting is one of the portal, not a default of the framework."""
    return bool(settings.is_overridden(name))  # type: ignore[misc]


def _shown(name: str) -> Any:
    value = getattr(settings, name)
    if name in SHOWN:
        return plain(value)
    return SET if value else NOT_SET


def plain(value: Any) -> Any:
    """Return a value as JSON."""
    if isinstance(value, bool | int | float | str) or value is None:
        return value
    if isinstance(value, timedelta):
        return value.total_seconds()
    if isinstance(value, dict):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    return str(value)
