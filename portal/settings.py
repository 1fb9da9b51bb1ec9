"""The portal's settings. One file; everything that an operator may change is read through ``portal.env``."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import Any

from portal import env, env_tracing
from runtime.isolation import gpu_devices

BASE_DIR = Path(__file__).resolve().parent.parent

# --- Location of state -----------------------------------------------------------------------------------------------
DATA_DIR = env.directory("REGATTA_DATA_DIR", BASE_DIR / "data")
SECRET_KEY = env.secret_key(DATA_DIR / "secret-key")
# Earlier keys: what they signed stays valid, and the agents of running attempts stay reachable.
SECRET_KEY_FALLBACKS = env.words("REGATTA_SECRET_KEY_FALLBACKS", [])

# The backend that runs jobs.
CLUSTER_BACKEND = env.choice("REGATTA_BACKEND", "local", ("local", "kubernetes"))

# --- Access to the portal --------------------------------------------------------------------------------------------
DEBUG = env.flag("REGATTA_DEBUG", False)
HOST = env.text("REGATTA_HOST", "127.0.0.1")
PORT = env.integer("PORT", 8000, minimum=1)
# A second port, for agents alone (portal.http.agent_port); 0: agents and people use the same.
AGENT_PORT = env.other_port("REGATTA_AGENT_PORT", PORT)
# The address at which agents beside the training processes reach the portal.
INGEST_URL = env.text("REGATTA_INGEST_URL", f"http://127.0.0.1:{AGENT_PORT or PORT}")
ALLOWED_HOSTS = env.hosts("REGATTA_ALLOWED_HOSTS", ["127.0.0.1", "localhost", "[::1]"], INGEST_URL)
CSRF_TRUSTED_ORIGINS = env.words("REGATTA_TRUSTED_ORIGINS", [])
# The host name of each notebook, whose pages are code of users: an origin of its own, which is not the portal's.
NOTEBOOK_HOSTS = env.notebook_hosts("REGATTA_NOTEBOOK_HOSTS", "{id}.notebook.localhost")
# Set when a proxy in front of the portal serves HTTPS: cookies then become Secure and carry the __Host- prefix.
HTTPS = env.flag("REGATTA_HTTPS", False)
# Maximum of connections of a web process, in total and per address (portal.http.connection_limits). The default is
# three quarters of the descriptors that it may open.
CONNECTIONS = env.integer("REGATTA_CONNECTIONS", env.descriptors() * 3 // 4, minimum=16)
CONNECTIONS_PER_ADDRESS = env.integer("REGATTA_CONNECTIONS_PER_ADDRESS", 200, minimum=1)
# Proxies whose X-Forwarded-For and X-Forwarded-Proto are trusted (portal.common.proxy_middleware); those of others are
# ignored.
TRUSTED_PROXIES = env.networks("REGATTA_TRUSTED_PROXIES", ["127.0.0.1", "::1"] if HTTPS else [])
if CLUSTER_BACKEND == "kubernetes" and not AGENT_PORT:
    env.require_narrow("REGATTA_TRUSTED_PROXIES", TRUSTED_PROXIES)
# How long a web process that has lost its database stays ready (portal.readiness).
READY_SECONDS = env.number("REGATTA_READY_SECONDS", 300.0)

# Port of metrics and health of each process (docs/metrics.md); 0: none. `manage.py up` uses the next two for worker and
# sweep.
OPERATIONS_PORT = env.integer("REGATTA_OPERATIONS_PORT", 0)

# --- Traces ----------------------------------------------------------------------------------------------------------
# The collector of OpenTelemetry traces (OTLP over HTTP); empty: no traces. Headers of its requests are a secret.
OTLP_ENDPOINT = env_tracing.collector("REGATTA_OTLP_ENDPOINT")
OTLP_HEADERS = env_tracing.headers("REGATTA_OTLP_HEADERS")
# The recorded ratio of submissions, each with its job, and of other requests.
TRACE_SUBMISSIONS = env_tracing.ratio("REGATTA_TRACE_SUBMISSIONS", 1.0)
TRACE_REQUESTS = env_tracing.ratio("REGATTA_TRACE_REQUESTS", 0.01)
# Whether trusted proxies choose the traces of requests. Most proxies pass the header `traceparent` of their clients.
TRACE_FROM_PROXIES = env.flag("REGATTA_TRACE_FROM_PROXIES", False)

# --- Applications ----------------------------------------------------------------------------------------------------
INSTALLED_APPS = [
    "django.contrib.auth",
    "django.contrib.contenttypes",
    "django.contrib.sessions",
    "django.contrib.messages",
    "django.contrib.staticfiles",
    "channels",
    "django_htmx",
    "rest_framework",
    "drf_spectacular",
    "social_django",
    "axes",
    "django_otp",
    "django_otp.plugins.otp_totp",
    "rbac",
    "quota",
    "datasets",
    "jobs",
    "portal",
]

MIDDLEWARE = [
    "portal.common.problems.SecurityHeadersMiddleware",
    "portal.common.proxy_middleware.TransportMiddleware",
    "django.middleware.security.SecurityMiddleware",
    "whitenoise.middleware.WhiteNoiseMiddleware",
    "django.contrib.sessions.middleware.SessionMiddleware",
    "django.middleware.locale.LocaleMiddleware",
    "django.middleware.common.CommonMiddleware",
    "django.middleware.csrf.CsrfViewMiddleware",
    "django.contrib.auth.middleware.AuthenticationMiddleware",
    "rbac.middleware.SeenMiddleware",
    "rbac.middleware.ImpersonationMiddleware",
    "rbac.middleware.AuditContextMiddleware",
    "rbac.middleware.OwedSecondFactorMiddleware",
    "django.contrib.messages.middleware.MessageMiddleware",
    "django.middleware.clickjacking.XFrameOptionsMiddleware",
    "django_htmx.middleware.HtmxMiddleware",
]

ROOT_URLCONF = "portal.urls"
ASGI_APPLICATION = "portal.asgi.application"
APPEND_SLASH = False

TEMPLATES = [
    {
        "BACKEND": "django.template.backends.django.DjangoTemplates",
        "DIRS": [],
        "APP_DIRS": True,
        "OPTIONS": {
            "context_processors": [
                "django.template.context_processors.request",
                "django.template.context_processors.i18n",
                "django.contrib.auth.context_processors.auth",
                "django.contrib.messages.context_processors.messages",
                "portal.context_processors.page_context",
            ],
        },
    },
]

# --- Database --------------------------------------------------------------------------------------------------------
# PostgreSQL when the environment names one, else a file. Deferred SQLite transactions upgrade their lock in the middle
# and then fail under concurrency; IMMEDIATE ones queue.
_EMBEDDED_DATABASE: dict[str, Any] = {
    "ENGINE": "django.db.backends.sqlite3",
    "NAME": DATA_DIR / "regatta.sqlite3",
    # A thread keeps its connection: to open one costs as much as several queries.
    "CONN_MAX_AGE": None,
    "OPTIONS": {
        "transaction_mode": "IMMEDIATE",
        "timeout": 20,
        "init_command": "PRAGMA journal_mode=WAL;PRAGMA synchronous=NORMAL;PRAGMA foreign_keys=ON;",
    },
}
# Maximum of connections of each process to PostgreSQL. A request takes one from the pool and returns it at its end
# (CONN_MAX_AGE is 0).
DATABASE_POOL_SIZE = env.pool_size("REGATTA_DATABASE_POOL_SIZE", 20)
DATABASES: dict[str, dict[str, Any]] = {
    "default": env.database("REGATTA_DATABASE_URL", DATABASE_POOL_SIZE) or _EMBEDDED_DATABASE
}
# PostgreSQL itself, for `prepare`, where REGATTA_DATABASE_URL is that of a PgBouncer in transaction mode: its locks are
# those of a session. A cursor of the server is one of a session too.
PREPARE_DATABASE = env.database("REGATTA_DATABASE_PREPARE_URL", 0)
if PREPARE_DATABASE:
    DATABASES["default"]["DISABLE_SERVER_SIDE_CURSORS"] = True
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"

# --- Sign-in ---------------------------------------------------------------------------------------------------------
AUTH_USER_MODEL = "rbac.User"
PASSWORD_HASHERS = ["rbac.sign_in.password_hashing.BoundedArgon2PasswordHasher"]
AUTH_PASSWORD_VALIDATORS = [
    {"NAME": "django.contrib.auth.password_validation.UserAttributeSimilarityValidator"},
    {"NAME": "django.contrib.auth.password_validation.MinimumLengthValidator", "OPTIONS": {"min_length": 12}},
    {"NAME": "django.contrib.auth.password_validation.CommonPasswordValidator"},
]
SESSION_ENGINE = "rbac.sign_in.sessions"
# External sign-in providers: those whose id and secret are set. {name: title on the button}
SIGN_IN_PROVIDERS = {
    name: title
    for name, title, is_configured in (
        ("oidc", env.text("REGATTA_OIDC_TITLE", "OpenID Connect"), env.text("REGATTA_OIDC_ID", "")),
        ("github", "GitHub", env.text("REGATTA_GITHUB_ID", "")),
        ("gitlab", "GitLab", env.text("REGATTA_GITLAB_ID", "")),
        ("google-oauth2", "Google", env.text("REGATTA_GOOGLE_ID", "")),
        ("baidu", "Baidu", env.text("REGATTA_BAIDU_ID", "")),
    )
    if is_configured
}
_PROVIDER_BACKENDS = {
    "oidc": "social_core.backends.open_id_connect.OpenIdConnectAuth",
    "github": "social_core.backends.github.GithubOAuth2",
    "gitlab": "social_core.backends.gitlab.GitLabOAuth2",
    "google-oauth2": "social_core.backends.google.GoogleOAuth2",
    "baidu": "rbac.sign_in.baidu.BaiduOAuth2",
}
AUTHENTICATION_BACKENDS = [
    "axes.backends.AxesStandaloneBackend",
    "django.contrib.auth.backends.ModelBackend",
    *(_PROVIDER_BACKENDS[name] for name in SIGN_IN_PROVIDERS),
]
SOCIAL_AUTH_OIDC_OIDC_ENDPOINT = env.text("REGATTA_OIDC_ISSUER", "")
SOCIAL_AUTH_OIDC_KEY = env.text("REGATTA_OIDC_ID", "")
SOCIAL_AUTH_OIDC_SECRET = env.text("REGATTA_OIDC_SECRET", "")
SOCIAL_AUTH_OIDC_USE_PKCE = True
SOCIAL_AUTH_GITHUB_KEY = env.text("REGATTA_GITHUB_ID", "")
SOCIAL_AUTH_GITHUB_SECRET = env.text("REGATTA_GITHUB_SECRET", "")
SOCIAL_AUTH_GITLAB_API_URL = env.text("REGATTA_GITLAB_URL", "https://gitlab.com")
SOCIAL_AUTH_GITLAB_KEY = env.text("REGATTA_GITLAB_ID", "")
SOCIAL_AUTH_GITLAB_SECRET = env.text("REGATTA_GITLAB_SECRET", "")
SOCIAL_AUTH_GOOGLE_OAUTH2_KEY = env.text("REGATTA_GOOGLE_ID", "")
SOCIAL_AUTH_GOOGLE_OAUTH2_SECRET = env.text("REGATTA_GOOGLE_SECRET", "")
SOCIAL_AUTH_BAIDU_URL = env.text("REGATTA_BAIDU_URL", "https://openapi.baidu.com")
SOCIAL_AUTH_BAIDU_KEY = env.text("REGATTA_BAIDU_ID", "")
SOCIAL_AUTH_BAIDU_SECRET = env.text("REGATTA_BAIDU_SECRET", "")
SOCIAL_AUTH_REDIRECT_IS_HTTPS = HTTPS
# No step of the pipeline searches for an account by e-mail address, and none stores the provider's tokens.
SOCIAL_AUTH_PIPELINE = (
    "social_core.pipeline.social_auth.social_details",
    "social_core.pipeline.social_auth.social_uid",
    "social_core.pipeline.social_auth.auth_allowed",
    "social_core.pipeline.social_auth.social_user",
    "rbac.sign_in.external.open_account",
    "social_core.pipeline.social_auth.associate_user",
)
# Who may open an account: "open" (anybody who confirms an address), "approval" (an admin also has to approve),
# "closed". When jobs run on the portal's own machine, the default is that nobody can.
SIGN_UP = env.choice(
    "REGATTA_SIGN_UP", "closed" if CLUSTER_BACKEND == "local" else "open", ("open", "approval", "closed")
)
ADMIN_SECOND_FACTOR = env.flag("REGATTA_ADMIN_SECOND_FACTOR", False)
PASSWORD_RESET_TIMEOUT = int(timedelta(hours=1).total_seconds())
LOGIN_URL = "sign-in"
LOGIN_REDIRECT_URL = "home"
SESSION_COOKIE_NAME = "__Host-session" if HTTPS else "regatta-session"
SESSION_COOKIE_AGE = int(timedelta(days=7).total_seconds())
SESSION_COOKIE_HTTPONLY = True
SESSION_COOKIE_SAMESITE = "Lax"
SESSION_COOKIE_SECURE = HTTPS
CSRF_COOKIE_NAME = "__Host-csrf" if HTTPS else "regatta-csrf"
CSRF_COOKIE_SAMESITE = "Lax"
CSRF_COOKIE_SECURE = HTTPS
CSRF_FAILURE_VIEW = "portal.common.problems.csrf_failure"
SECURE_SSL_REDIRECT = HTTPS
# Agents and probes of the portal call it from inside, without encryption.
SECURE_REDIRECT_EXEMPT = [r"^ingest/", r"^healthz$", r"^readyz$"]
# Reaches Django only from a trusted proxy.
SECURE_PROXY_SSL_HEADER = ("HTTP_X_FORWARDED_PROTO", "https")
# For this host name alone by default: its subdomains may not support HTTPS yet.
SECURE_HSTS_SECONDS = int(timedelta(days=365).total_seconds()) if HTTPS else 0
SECURE_HSTS_INCLUDE_SUBDOMAINS = SECURE_HSTS_PRELOAD = env.flag("REGATTA_HSTS_SUBDOMAINS", False)
SECURE_CONTENT_TYPE_NOSNIFF = True
SECURE_REFERRER_POLICY = "same-origin"
X_FRAME_OPTIONS = "DENY"

# Failed sign-ins are counted by name *and* address: guessing is slow, and nobody can lock out all callers behind one
# proxy, nor one person from everywhere else. A success clears the count.
AXES_LOCKOUT_PARAMETERS = [["username", "ip_address"]]
AXES_FAILURE_LIMIT, AXES_COOLOFF_TIME = env.rate("REGATTA_SIGN_IN_RATE", "20/min")
AXES_CLIENT_IP_CALLABLE = "rbac.sign_in.password_guessing.network_of"
# Failed attempts that one network (an IPv4 address, a /64 of IPv6) may make, whatever the names.
SIGN_IN_NETWORK_RATE = env.rate("REGATTA_SIGN_IN_NETWORK_RATE", "60/min")
AXES_RESET_ON_SUCCESS = True
AXES_RESET_COOL_OFF_ON_FAILURE_DURING_LOCKOUT = False
AXES_DISABLE_ACCESS_LOG = True  # the audit log records it
AXES_ENABLE_ADMIN = False
AXES_VERBOSE = False
# How often an account may submit jobs, and an attempt may send files (uploads) and other messages (ingest).
SUBMIT_RATE = env.rate("REGATTA_SUBMIT_RATE", "120/min")
UPLOAD_RATE = env.rate("REGATTA_UPLOAD_RATE", "600/min")
INGEST_RATE = env.rate("REGATTA_INGEST_RATE", "2000/s")
# How many metric names a job may have; points of further names are dropped.
METRIC_NAMES = env.integer("REGATTA_METRIC_NAMES", 2000, minimum=1)
# The portal's own pages answer a locked-out caller; the middleware of axes would replace their response.
SILENCED_SYSTEM_CHECKS = ["axes.W002"]

# --- E-mail ----------------------------------------------------------------------------------------------------------
globals().update(env.mail_server("REGATTA_MAIL_SERVER"))
DEFAULT_FROM_EMAIL = env.text("REGATTA_MAIL_FROM", "regatta@localhost")
EMAIL_TIMEOUT = 10

# --- HTTP API --------------------------------------------------------------------------------------------------------
REST_FRAMEWORK: dict[str, Any] = {
    "DEFAULT_AUTHENTICATION_CLASSES": [
        "rbac.authentication.TokenAuthentication",
        "rest_framework.authentication.SessionAuthentication",
    ],
    "DEFAULT_PERMISSION_CLASSES": ["rest_framework.permissions.IsAuthenticated"],
    "DEFAULT_RENDERER_CLASSES": ["rest_framework.renderers.JSONRenderer"],
    "DEFAULT_PARSER_CLASSES": ["portal.common.parsers.BoundedJSONParser"],
    "DEFAULT_SCHEMA_CLASS": "drf_spectacular.openapi.AutoSchema",
    "EXCEPTION_HANDLER": "portal.common.problems.problem_from_exception",
    "UNAUTHENTICATED_USER": "django.contrib.auth.models.AnonymousUser",
}
SPECTACULAR_SETTINGS = {
    "TITLE": "Regatta",
    "DESCRIPTION": "A cloud training portal.",
    "VERSION": "1",
    "SERVE_INCLUDE_SCHEMA": False,
    "SERVE_PERMISSIONS": ["rest_framework.permissions.AllowAny"],
    "ENUM_NAME_OVERRIDES": {
        "RoleEnum": "rbac.models.Role",
        "ServiceRoleEnum": "rbac.tokens.SERVICE_ROLES",
        "ScopeEnum": "rbac.scopes.Scope",
        "NamespaceScopeEnum": "rbac.scopes.OF_NAMESPACES",
    },
    "SCHEMA_PATH_PREFIX": "/api/v1",
    "POSTPROCESSING_HOOKS": [
        "drf_spectacular.hooks.postprocess_schema_enums",
        "portal.openapi.with_bodies_of_delete",
        "portal.openapi.with_problems",
        "portal.openapi.with_scopes",
    ],
}
# Whether the reader of a large body takes it from the socket (portal.http.direct_body) where uvicorn allows that.
DIRECT_BODIES = True
DATA_UPLOAD_MAX_MEMORY_SIZE = 20 * 1024 * 1024

# --- Background work -------------------------------------------------------------------------------------------------
# The database is authoritative; a message is a hint. The file-system broker needs no server.
BROKER_URL = env.redis_address("REGATTA_BROKER_URL", "filesystem://")
BROKER_DIR = DATA_DIR / "broker"
SWEEP_SECONDS = env.number("REGATTA_SWEEP_SECONDS", 1.0, minimum=0.05)

# --- Doorbell --------------------------------------------------------------------------------------------------------
# Empty: rings are datagrams to local sockets in the run directory, and each process counts requests for itself; else a
# Redis carries rings and counts requests for all processes.
REDIS_URL = env.redis_address("REGATTA_REDIS_URL", "")
# Counters of requests of this process (rbac.throttle), which also serve while Redis does not answer.
CACHES = {
    "default": {
        "BACKEND": "django.core.cache.backends.locmem.LocMemCache",
        "LOCATION": "of-this-process",
        "OPTIONS": {"MAX_ENTRIES": 100_000},
    }
}

# --- Training --------------------------------------------------------------------------------------------------------
# Kubernetes backend: the kubeconfig file of the cluster; empty: the cluster that the portal runs in, else
# ~/.kube/config.
KUBECONFIG = env.text("REGATTA_KUBECONFIG", "")
# The image of jobs that have no image of their own; it holds the runtime in /opt/regatta.
KUBERNETES_IMAGE = env.text("REGATTA_KUBERNETES_IMAGE", "")
# Prefix of the names of namespaces, which separates those of the portal from others of the cluster.
KUBERNETES_PREFIX = env.text("REGATTA_KUBERNETES_PREFIX", "regatta-")
# Fields of a pod that select the nodes of jobs: nodeSelector, affinity, tolerations.
KUBERNETES_PLACEMENT = env.json_object("REGATTA_KUBERNETES_PLACEMENT")
KUBERNETES_GPU = env.text("REGATTA_KUBERNETES_GPU", "nvidia.com/gpu")
# Cores that a replica with a smaller request may use while its node has them free; 0: never more than its request.
KUBERNETES_CPU_BURST = env.number("REGATTA_KUBERNETES_CPU_BURST", 1.0)
KUBERNETES_PULL_SECRET = env.text("REGATTA_KUBERNETES_PULL_SECRET", "")
# Directories that pods see at the same path as the portal, each with a pod's volume; other data is fetched.
KUBERNETES_DATA = env.json_object("REGATTA_KUBERNETES_DATA")
# A pod's volume for checkpoints of parameter servers; without one no checkpoints are stored.
KUBERNETES_CHECKPOINTS = env.json_object("REGATTA_KUBERNETES_CHECKPOINTS")
# The path of that volume in the portal's own processes, which measure and remove checkpoints there; empty: they do not.
KUBERNETES_CHECKPOINTS_DIR = env.text("REGATTA_KUBERNETES_CHECKPOINTS_DIR", "")
# Volume for the homes of notebooks, as in a pod and without its name, and the directory ``homes`` of it where it is
# mounted on the portal's machines.
KUBERNETES_HOMES = env.json_object("REGATTA_KUBERNETES_HOMES")
KUBERNETES_HOMES_DIR = env.text("REGATTA_KUBERNETES_HOMES_DIR", "")
# The portal's address for the client inside notebooks.
CLIENT_URL = env.text("REGATTA_CLIENT_URL", f"http://127.0.0.1:{PORT}")
# Whether the portal creates and maintains its namespaces there; else a cluster's admin does.
KUBERNETES_NAMESPACES = env.flag("REGATTA_KUBERNETES_NAMESPACES", True)
# NAMESPACE/NAME of the portal's own service account, which is bound to its role in each of them.
KUBERNETES_ACCOUNT = env.text("REGATTA_KUBERNETES_ACCOUNT", "")
# Addresses that pods may reach, in addition to those in other settings.
KUBERNETES_REACH = env.json_list("REGATTA_KUBERNETES_REACH")
# A Docker configuration file with which nodes pull jobs' images: a Secret in each namespace.
KUBERNETES_PULL_CREDENTIALS = env.text("REGATTA_KUBERNETES_PULL_CREDENTIALS", "")
# Whether `manage.py up` runs the controller of PaddleJobs; disable it when the cluster has one.
KUBERNETES_CONTROLLER = env.flag("REGATTA_KUBERNETES_CONTROLLER", True)
# Empty: the backend makes a store for each attempt.
COORDINATION = env.etcd_address("REGATTA_COORDINATION")
# The coordination gateway, which jobs reach instead of etcd; empty: they reach etcd.
COORDINATION_JOBS = env.gateway_address("REGATTA_COORDINATION_JOBS", COORDINATION)
# How long the processes of an attempt continue while the coordination store does not answer. 0 is strict: each stops
# before its lease can expire.
OUTAGE_SECONDS = env.number("REGATTA_OUTAGE_SECONDS", 120.0)
ATTEMPTS_DIR = DATA_DIR / "attempts"
# Isolation of jobs on this machine. auto: namespaces when the machine supports them, else only jobs of admins run;
# namespaces: the portal does not start without them; none: everybody's jobs run without (docs/security.md).
LOCAL_ISOLATION = env.choice("REGATTA_LOCAL_ISOLATION", "auto", ("auto", "namespaces", "none"))
# shared: jobs use the machine's network; private: each attempt has a loopback device and nothing else.
LOCAL_NETWORK = env.choice("REGATTA_LOCAL_NETWORK", "shared", ("shared", "private"))
# When the portal runs as root, each attempt gets one of these user ids.
LOCAL_UIDS = env.ids("REGATTA_LOCAL_UIDS", "2000000000-2000065535")
# Disk space for the files of one replica, in bytes; 0: no limit.
LOCAL_DISK_BYTES = env.integer("REGATTA_LOCAL_DISK_BYTES", 20 * 1024**3)
# A bucket, with the directory as a staging area; or a directory, which may be a shared file system.
STORAGE_BUCKET = env.bucket("REGATTA_STORAGE")
STORAGE_DIR = env.directory("REGATTA_STORAGE", DATA_DIR / "storage") if STORAGE_BUCKET is None else DATA_DIR / "storage"
# How often the parameter servers of a job write a checkpoint ...
CHECKPOINT_SECONDS = env.number("REGATTA_CHECKPOINT_SECONDS", 600.0, minimum=0.1)
# ... and how long a job that did not succeed can be retried from there.
KEEP_CHECKPOINTS_DAYS = env.number("REGATTA_KEEP_CHECKPOINTS_DAYS", 7.0)
# How long a job's build, code and packages, is stored after its last use.
KEEP_BUILDS_DAYS = env.number("REGATTA_KEEP_BUILDS_DAYS", 14.0)
# How long data of ended jobs is stored after their end; 0 stores it for ever. Their log and metrics ...
KEEP_STREAMS_DAYS = env.number("REGATTA_KEEP_STREAMS_DAYS", 90.0)
# ... their timeline ...
KEEP_HISTORY_DAYS = env.number("REGATTA_KEEP_HISTORY_DAYS", 365.0)
# ... and the usage of each attempt, by user and job; the hours by day stay.
KEEP_USAGE_DAYS = env.number("REGATTA_KEEP_USAGE_DAYS", 400.0)
# How long the audit log stores rows, at least 365 days: triggers of the database enforce that. 0 stores them for ever.
KEEP_AUDIT_DAYS = env.days_from("REGATTA_KEEP_AUDIT_DAYS", 400.0, least=365.0)
# How long a deleted dataset can be restored, and after how long an unfinished version without new files is dropped.
KEEP_DELETED_DATASETS_DAYS = env.number("REGATTA_KEEP_DELETED_DATASETS_DAYS", 7.0)
KEEP_UPLOADS_DAYS = env.number("REGATTA_KEEP_UPLOADS_DAYS", 7.0)
# Starts of each replica that the cluster may use without the portal, within the restarts of the replica; 0: none.
SPARE_STARTS = env.integer("REGATTA_SPARE_STARTS", 2, minimum=0)
# How long a replica may take until it registers before its attempt is ended with a reason.
REGISTRATION_SECONDS = env.number(
    "REGATTA_REGISTRATION_SECONDS", 60.0 if CLUSTER_BACKEND == "local" else 600.0, minimum=1.0
)
# Seconds of a replica between SIGTERM and SIGKILL.
STOP_GRACE_SECONDS = env.number("REGATTA_STOP_GRACE_SECONDS", 5.0)
# The same when the namespace that lent it its capacity needs that back.
PREEMPTION_GRACE_SECONDS = env.number("REGATTA_PREEMPTION_GRACE_SECONDS", 30.0)
# Bytes that one replica may print in one attempt; the rest is counted and dropped.
LOG_CAP_BYTES = env.integer("REGATTA_LOG_CAP_BYTES", 64 * 1024 * 1024, minimum=1024)
# Whether the number of trainers of elastic jobs is changed (on), only decided and reported (explain), or left alone
# (off); admins can switch it on their pages. A job that was shrunk does not grow again during the cool-down.
ELASTIC_MODE = env.choice("REGATTA_ELASTIC", "on", ("on", "explain", "off"))
ELASTIC_COOL_DOWN_SECONDS = env.number("REGATTA_ELASTIC_COOL_DOWN_SECONDS", 30.0)

# --- Images ----------------------------------------------------------------------------------------------------------
# On Kubernetes a job's code and packages are an image. HOST[:PORT][/PREFIX] of the registry that stores them.
IMAGE_REGISTRY = env.image_registry("REGATTA_REGISTRY")
# Plain HTTP, for an internal registry.
REGISTRY_INSECURE = env.flag("REGATTA_REGISTRY_INSECURE", False)
# A Docker configuration file with the credentials to push with.
REGISTRY_CREDENTIALS = env.text("REGATTA_REGISTRY_CREDENTIALS", "")
# The base of every image: a Python of 3.11 or newer.
BASE_IMAGE = env.text("REGATTA_BASE_IMAGE", "python:3.11-slim")
IMAGE_BUILDER = env.choice("REGATTA_IMAGE_BUILDER", "buildah", ("buildah", "pod"))
# Of the builder pod: its namespace, the image that has the tools in /opt/regatta-build (the portal's own), and the
# Secret there with which it pulls and pushes.
BUILD_NAMESPACE = env.text("REGATTA_BUILD_NAMESPACE", "regatta-builds")
BUILD_TOOLS_IMAGE = env.text("REGATTA_BUILD_TOOLS_IMAGE", "")
BUILD_SECRET = env.text("REGATTA_BUILD_SECRET", "")
# The maximum time to build an image, and the maximum size that the packages of a job may add to it.
BUILD_SECONDS = env.number("REGATTA_BUILD_SECONDS", 900.0, minimum=1.0)
IMAGE_LIMIT_BYTES = env.integer("REGATTA_IMAGE_LIMIT_BYTES", 8 * 1024**3, minimum=1024**2)

# --- Quota -----------------------------------------------------------------------------------------------------------
# The quota that a personal namespace starts with.
DEFAULT_QUOTA = {
    "cpu": env.number("REGATTA_QUOTA_CPU", 16),
    "memory": env.integer("REGATTA_QUOTA_MEMORY", 16 * 1024**3),
    "gpu": env.integer("REGATTA_QUOTA_GPU", len(gpu_devices.present()) if CLUSTER_BACKEND == "local" else 0),
    "jobs": env.integer("REGATTA_QUOTA_JOBS", 8),
    "storage": env.integer("REGATTA_QUOTA_STORAGE", 20 * 1024**3),
}

# --- Static files ----------------------------------------------------------------------------------------------------
STATIC_URL = "/static/"
STATICFILES_DIRS: list[Path] = []
# Served from the application directories: a user's machine needs no collectstatic step.
WHITENOISE_USE_FINDERS = True
WHITENOISE_AUTOREFRESH = False

# --- Language and time -----------------------------------------------------------------------------------------------
LANGUAGE_CODE = "en"
LANGUAGES = [("en", "English"), ("zh-hans", "简体中文")]
LOCALE_PATHS = [BASE_DIR / "portal" / "locale"]
USE_I18N = True
USE_TZ = True
TIME_ZONE = "UTC"

# --- Logging ---------------------------------------------------------------------------------------------------------
# text for people; json for collectors: one object a line.
LOG_FORMAT = env.choice("REGATTA_LOG_FORMAT", "text", ("text", "json"))
# A line for each request. On a terminal it would hide the other lines.
ACCESS_LOG = env.flag("REGATTA_ACCESS_LOG", LOG_FORMAT == "json")
LOGGING = {
    "version": 1,
    "disable_existing_loggers": False,
    "formatters": {
        "text": {"()": "portal.common.monitoring.log_formats.TextFormatter"},
        "json": {"()": "portal.common.monitoring.log_formats.JsonFormatter"},
    },
    "handlers": {"stderr": {"class": "logging.StreamHandler", "formatter": LOG_FORMAT}},
    "root": {"handlers": ["stderr"], "level": env.text("REGATTA_LOG_LEVEL", "INFO")},
    "loggers": {
        "django.request": {"level": "ERROR"},
        "axes": {"level": "WARNING"},
        "httpx": {"level": "WARNING"},
        "kombu.connection": {"level": "ERROR"},
        # portal.common.tracing logs an outage of the collector once.
        "opentelemetry": {"level": "CRITICAL"},
        **({} if ACCESS_LOG else {"portal.access": {"level": "WARNING"}}),
    },
}
