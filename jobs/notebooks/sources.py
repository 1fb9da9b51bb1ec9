"""What a notebook starts from: nothing, a template, a job, a dataset or a Git address.

The row stores it as JSON: ``{"kind": "template", "name": "digits"}``, ``{"kind": "job", "job": "<id>"}``,
``{"kind": "dataset", "dataset": "team/mine"}``, ``{"kind": "git", "address": "https://..."}``, or ``{}``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit
from uuid import UUID

from datasets import selectors as datasets
from jobs import examples
from jobs.builds import code_snapshots
from jobs.messages import notebooks as messages
from jobs.notebooks import documents
from jobs.selectors.jobs import job_for
from portal.common.errors import NotFound, ValidationFailed
from rbac.models import User
from rbac.scopes import Scope

EMPTY, TEMPLATE, JOB, DATASET, GIT = "empty", "template", "job", "dataset", "git"
KINDS = (EMPTY, TEMPLATE, JOB, DATASET, GIT)
FIELD = "source"
_LONGEST_ADDRESS = 500
Source = dict[str, str]


@dataclass(frozen=True)
class Start:
    """Files of the first start by their path in the notebook's directory, a dataset to read, an address to clone, and
    the file that JupyterLab opens."""

    files: Mapping[str, str] = field(default_factory=dict)
    dataset: str = ""
    git: str = ""
    opened: str = ""


def checked(actor: User, namespace: str, given: object) -> Source:
    """Return the source that ``given`` describes. Raises ValidationFailed."""
    body = given if isinstance(given, Mapping) else {}
    kind = str(body.get("kind") or EMPTY)
    if kind not in KINDS or (given is not None and not isinstance(given, Mapping)):
        raise ValidationFailed({FIELD: [messages.SOURCE_UNKNOWN(names=", ".join(KINDS))]})
    try:
        return _CHECKS[kind](actor, namespace, body)
    except NotFound as missing:
        raise ValidationFailed({FIELD: [missing.detail]}) from None


def _empty(actor: User, namespace: str, body: Mapping[str, Any]) -> Source:
    return {}


def _template(actor: User, namespace: str, body: Mapping[str, Any]) -> Source:
    name = str(body.get("name", ""))
    if all(example.name != name for example in examples.catalogue()):
        raise ValidationFailed({FIELD: [messages.TEMPLATE_UNKNOWN(name=f"{name[:40]!r}")]})
    return {"kind": TEMPLATE, "name": name}


def _job(actor: User, namespace: str, body: Mapping[str, Any]) -> Source:
    return {"kind": JOB, "job": str(job_for(actor, str(body.get("job", "")), Scope.JOB_READ).pk)}


def _dataset(actor: User, namespace: str, body: Mapping[str, Any]) -> Source:
    name = str(body.get("dataset", ""))
    if not name.isprintable():
        raise ValidationFailed({FIELD: [messages.SOURCE_UNKNOWN(names=", ".join(KINDS))]})
    datasets.resolve(actor, namespace, name)
    return {"kind": DATASET, "dataset": name}


def _git(actor: User, namespace: str, body: Mapping[str, Any]) -> Source:
    address = str(body.get("address", "")).strip()
    if problem := git_problem(address):
        raise ValidationFailed({FIELD: [problem]})
    return {"kind": GIT, "address": address}


_CHECKS: Mapping[str, Callable[[User, str, Mapping[str, Any]], Source]] = {
    EMPTY: _empty,
    TEMPLATE: _template,
    JOB: _job,
    DATASET: _dataset,
    GIT: _git,
}


def git_problem(address: str) -> str:
    """Return why the address cannot be cloned; empty if it can be tried."""
    try:
        parts = urlsplit(address)
        host, secret = parts.hostname, parts.username or parts.password
    except ValueError:
        return messages.GIT_ADDRESS_INVALID()
    if parts.scheme != "https" or not host or len(address) > _LONGEST_ADDRESS:
        return messages.GIT_ADDRESS_INVALID()
    if secret or not address.isprintable() or " " in address:
        return messages.GIT_ADDRESS_INVALID()
    return ""


def start_of(actor: User, source: Mapping[str, Any], name: str, url_of_job: Callable[[str], str]) -> Start:
    """Return what the first start lays out. Raises NotFound and Forbidden for what the actor may not read any more."""
    file = f"{name}.ipynb"
    match source.get("kind"):
        case "template":
            example = next(one for one in examples.catalogue() if one.name == source["name"])
            dataset = str(example.spec.get("dataset") or "")
            files = {**example.spec["files"], file: documents.empty()}
            return Start(files, dataset, opened=file)
        case "job":
            job = job_for(actor, UUID(source["job"]), Scope.JOB_READ)
            files = code_snapshots.files_of(job.snapshot)
            document = documents.of_job(str(job.pk), job.name, url_of_job(str(job.pk)))
            return Start({**files, file: document}, str(job.spec.get("dataset") or ""), opened=file)
        case "dataset":
            return Start({file: documents.of_dataset(source["dataset"])}, source["dataset"], opened=file)
        case "git":
            return Start(git=source["address"])
        case _:
            return Start({file: documents.empty()}, opened=file)
