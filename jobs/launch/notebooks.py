"""What the launch of a notebook's job adds to its plan: the home, the settings of Jupyter, and the client's token."""

from __future__ import annotations

from dataclasses import replace

from django.conf import settings
from django.utils.crypto import salted_hmac

from jobs.backends.base import LaunchFailed, LaunchPlan
from jobs.frameworks.definitions import NOTEBOOK
from jobs.messages import notebooks as messages
from jobs.models import Attempt, Job, Notebook
from jobs.models.notebooks import base_url
from rbac import tokens
from runtime import contract

_TOKEN_NAME = "notebook {name}"  # noqa: S105  a name


def secret_of(attempt: Attempt) -> str:
    """Return the token of the client inside an attempt. It is derived, so that a second launch gives the same one."""
    return tokens.TOKEN_PREFIX + salted_hmac("jobs.notebook-token", str(attempt.pk), algorithm="sha256").hexdigest()


def completed(plan: LaunchPlan, job: Job, attempt: Attempt) -> LaunchPlan:
    """Return the plan with what a notebook needs; the plan itself for other jobs. Raises LaunchFailed."""
    if plan.framework != NOTEBOOK:
        return plan
    notebook = Notebook.objects.select_related("namespace", "token").filter(job=job).first()
    if notebook is None:
        # The job is there an instant before its notebook names it.
        raise LaunchFailed(messages.NOTEBOOK_GONE(), retryable=True)
    secret = secret_of(attempt)
    token = tokens.create_bound_token(
        user=job.owner, namespace=notebook.namespace, name=_TOKEN_NAME.format(name=notebook.name), secret=secret
    )
    if notebook.token is not None and notebook.token != token:
        tokens.end_token(notebook.token)
    Notebook.objects.filter(pk=notebook.pk).update(token=token)
    variables = _variables(notebook, secret)
    home = str(notebook.namespace_id)
    replicas = (replace(one, home=home, environment={**one.environment, **variables}) for one in plan.replicas)
    return replace(plan, replicas=tuple(replicas))


def _variables(notebook: Notebook, secret: str) -> dict[str, str]:
    address = notebook.source.get("address", "")
    return {
        contract.NOTEBOOK_BASE_URL: base_url(notebook.namespace.name, notebook.pk),
        contract.NOTEBOOK_NAME: notebook.name,
        contract.NOTEBOOK_FOLDER: notebook.name,
        contract.CLIENT_SERVER: settings.CLIENT_URL,
        contract.CLIENT_TOKEN: secret,
        contract.CLIENT_NAMESPACE: notebook.namespace.name,
        **({contract.NOTEBOOK_GIT: address} if address else {}),
    }
