"""The magic ``%%train``: runs a cell as a job. ``%load_ext regatta`` makes it available."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from typing import Any

import click

from regatta.errors import QuotaExceeded
from regatta.job import Job
from regatta.notebook import here, program, submission
from regatta.notebook.errors import CaptureError
from regatta.options import PAIR, overrides
from regatta.watching import kernel
from regatta.watching.errors import JobFailed
from regatta.watching.watching import watched

_RESULT = "job"


def load(shell: Any) -> None:
    """Register the magic with a shell of IPython."""
    shell.register_magic_function(train, magic_kind="cell", magic_name="train")


def train(line: str, cell: str) -> Job | None:
    """Run the cell as a job. `%%train --help` lists the options."""
    try:
        result: Job | None = _train.main(shlex.split(line), "%%train", standalone_mode=False, obj=cell)
    except click.ClickException as error:
        raise CaptureError([f"%%train: {error.format_message()}"]) from None
    except ValueError as error:  # of shlex: a quotation mark without its partner
        raise CaptureError([f"%%train: {error}: {line}"]) from None
    return result if isinstance(result, Job) else None  # --help returns a number


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.option(
    "-p", "--param", "params", multiple=True, type=PAIR, help="Parameter of the cell, NAME=VALUE. Repeatable."
)
@click.option("-r", "--requirement", "requirements", multiple=True, help="Package to install with pip. Repeatable.")
@click.option("-e", "--env", multiple=True, type=PAIR, help="Environment variable, NAME=VALUE. Repeatable.")
@overrides
@click.option("--on-iteration", "callback", default="", metavar="NAME", help="Function to call with each iteration.")
@click.option("--no-wait", is_flag=True, help="Return at once; a thread watches the job.")
@click.option("--as", "variable", default=_RESULT, show_default=True, metavar="NAME", help="Variable for the job.")
@click.option("--show", is_flag=True, help="Print the program that would be sent, and submit nothing.")
@click.option("--dry-run", is_flag=True, help="Also ask the portal whether the quota allows the job.")
@click.option("-n", "--namespace", default="", help="Namespace. Default: the current one.")
@click.pass_obj
def _train(
    cell: str,
    /,
    params: Sequence[tuple[str, str]],
    requirements: Sequence[str],
    env: Sequence[tuple[str, str]],
    callback: str,
    no_wait: bool,
    variable: str,
    show: bool,
    dry_run: bool,
    namespace: str,
    **given: Any,
) -> Job | None:
    """Run the cell as a job and show it below the cell.

    The job is in the variable `job`. Ctrl-C, or Interrupt in the menu, ends the watching and not the job.
    """
    shell = kernel.shell()
    values = {name: submission.parameter(value) for name, value in params}
    cells = here.cells(shell.user_ns)
    made = program.of_cell(cell, cells, values, label=kernel.cell_label())
    on_iteration = _function(shell.user_ns, callback)
    spec = submission.specification(made, given, requirements=requirements, env=dict(env))
    if show or dry_run:
        print(made.text, end="")
    if dry_run:
        _print_outcome(submission.signed_in().jobs.preview(spec, namespace=namespace))
    if show or dry_run:
        return None
    job = submission.signed_in().jobs.submit(spec, namespace=namespace)
    shell.user_ns[variable] = job
    try:
        job = watched(job, on_iteration, wait=not no_wait, translate=made.at_cells)
    except JobFailed as failure:
        job = failure.job
        raise
    finally:
        shell.user_ns[variable] = job
    return job


def options_of(line: str) -> dict[str, Any]:
    """Return the options of a line ``%%train ...`` by name. Raises CaptureError."""
    try:
        return dict(_train.make_context("%%train", shlex.split(line)).params)
    except (click.ClickException, ValueError) as error:
        raise CaptureError([f"%%train: {error}"]) from None


def _function(namespace: dict[str, Any], name: str) -> Any:
    if not name:
        return None
    if not callable(namespace.get(name)):
        raise click.UsageError(f"--on-iteration {name}: the notebook has no function of this name.")
    return namespace[name]


def _print_outcome(preview: dict[str, Any]) -> None:
    """Print the expected outcome. Raises QuotaExceeded for a job that can never fit."""
    replicas = len(preview["plan"].get("replicas") or [])
    verdict, reason = preview["verdict"], preview["reason"]
    print(f"\n# Nothing was submitted. The job would be {verdict}, with {replicas} replicas. {reason}")
    if preview["verdict"] == "refused":
        raise QuotaExceeded(preview["reason"])
