"""Submission of a function or a cell as a job."""

from __future__ import annotations

import ast
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypedDict

from regatta import jobfile
from regatta.errors import NotSignedIn
from regatta.notebook import here, program
from regatta.notebook.program import FILE, Program, Scalar
from regatta.watching.watching import watched

if TYPE_CHECKING:
    from typing import Unpack

    from regatta.api import Client
    from regatta.job import Job
    from regatta.watching.callbacks import Callback

_COMMAND, _NATIVE = "command", "native"
_DEFAULT_NAME = "notebook"


class Fields(TypedDict, total=False):
    """Fields of the specification that options set; see "Describe a job" in the guide."""

    name: str
    framework: str
    dataset: str
    passes: int
    mode: str
    trainers: int
    min_trainers: int
    max_trainers: int
    pservers: int
    cpu: float
    memory: str
    gpu: int
    pserver_cpu: float
    pserver_memory: str
    priority: str
    timeout: str
    retries: int


def submit(
    function: Callable[..., object],
    *,
    params: Mapping[str, Scalar] | None = None,
    on_iteration: Callback | None = None,
    wait: bool = True,
    requirements: Sequence[str] = (),
    env: Mapping[str, str] | None = None,
    namespace: str = "",
    client: Client | None = None,
    **fields: Unpack[Fields],
) -> Job:
    """Run a function of this notebook or program as a job: ``submit(train, trainers=4, params={"lr": 0.1})``.

    The function is sent as source text with all that it uses; each trainer calls it with ``params``, which are numbers,
    texts, booleans or None. ``wait=True`` shows the job until it ends and raises JobFailed if it does not succeed;
    Ctrl-C ends the watching only. ``wait=False`` returns at once, and a thread watches. ``on_iteration`` is called with
    each Iteration, in order and once. Raises CaptureError for code that cannot be sent.
    """
    made = program_of(function, params)
    name = function.__name__.replace("_", "-").strip("-").lower() or _DEFAULT_NAME
    given = {"name": name, **fields}
    spec = specification(made, given, requirements=requirements, env=env or {})
    job = signed_in(client).jobs.submit(spec, namespace=namespace)
    return watched(job, on_iteration, wait=wait, translate=made.at_cells)


def code_of(function: Callable[..., object], *, params: Mapping[str, Scalar] | None = None) -> str:
    """Return the program that ``submit`` would send. Raises CaptureError."""
    return program_of(function, params).text


def program_of(function: Callable[..., object], params: Mapping[str, Scalar] | None) -> Program:
    _check(params or {})
    return program.of_function(function, here.cells(getattr(function, "__globals__", {})), params or {})


def specification(
    made: Program,
    given: Mapping[str, Any],
    *,
    requirements: Sequence[str] = (),
    env: Mapping[str, str],
    folder: Path | None = None,
) -> dict[str, Any]:
    """Return the specification of a program. Modules in the notebook's directory that it imports are sent with it.

    Without a framework it is a native job if the program or such a module imports ``runtime``, and else a command.
    ``folder``: that of the notebook; default: the current one. Raises TypeError for an unknown field.
    """
    if unknown := set(given) - set(Fields.__annotations__):
        known = ", ".join(sorted(Fields.__annotations__))
        raise TypeError(f"There is no field {', '.join(sorted(unknown))}. Fields: {known}.")
    files = {FILE: made.text}
    jobfile.with_modules(files, FILE, folder or Path())
    is_native = any(jobfile.imports_runtime(text) for text in files.values())
    framework = given.get("framework") or (_NATIVE if is_native else _COMMAND)
    entrypoint: Any = ["python", FILE] if framework == _COMMAND else FILE
    spec: dict[str, Any] = {"name": _DEFAULT_NAME, "framework": framework, "entrypoint": entrypoint, "files": files}
    if requirements:
        spec["requirements"] = list(requirements)
    if env or made.env:
        spec["env"] = {**env, **made.env}
    return jobfile.changed(spec, {**given, "framework": framework})


def signed_in(client: Client | None = None) -> Client:
    """Return ``client``, or one with the sign-in of `regatta login`. Raises NotSignedIn."""
    from regatta import config
    from regatta.api import Client

    if client is not None:
        return client
    context = config.in_use()
    if not context.token:
        raise NotSignedIn(
            f"You are not signed in to {context.server}. Run `regatta login --server {context.server}` in a terminal, "
            "or set REGATTA_SERVER and REGATTA_TOKEN."
        )
    return Client()


def parameter(text: str) -> Scalar:
    """Return the value of ``name=text``: a number, true, false, null or a quoted text; any other text is itself."""
    try:
        value = ast.literal_eval({"true": "True", "false": "False", "null": "None"}.get(text, text))
    except (ValueError, SyntaxError, MemoryError, RecursionError):
        return text
    return value if isinstance(value, bool | int | float | str | None) else text


def _check(params: Mapping[str, object]) -> None:
    for name, value in params.items():
        if not name.isidentifier():
            raise TypeError(f"{name!r} is not a name for a parameter.")
        if type(value) not in (bool, int, float, str, type(None)):
            kind = type(value).__name__
            raise TypeError(f"The parameter {name} is a {kind}. Parameters are numbers, texts, booleans or None.")
