"""Commands for jobs: submit, list, show, scale, cancel, delete, retry."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import click

from regatta import jobfile, tree
from regatta.api import Client
from regatta.commands import stream
from regatta.errors import QuotaExceeded
from regatta.job import Job
from regatta.options import PAIR, overrides
from regatta.session import Session, take
from regatta.terminal import output
from regatta.terminal.output import Listing, print_message

namespace_option = click.option("-n", "--namespace", default="", help="Namespace. Default: the current one.")


AFTER_DASHES = "regatta.after_dashes"


class WithProgram(click.Command):
    """Command that leaves the arguments after the first ``--`` unparsed: they belong to the program."""

    def parse_args(self, context: click.Context, arguments: list[str]) -> list[str]:
        if "--" in arguments:
            dashes = arguments.index("--")
            context.meta[AFTER_DASHES] = tuple(arguments[dashes + 1 :])
            arguments = arguments[:dashes]
        return super().parse_args(context, arguments)

    def collect_usage_pieces(self, context: click.Context) -> list[str]:
        return [*super().collect_usage_pieces(context), "[-- PROGRAM ARGUMENTS...]"]


@click.command(cls=WithProgram)
@click.argument("file", required=False, type=click.Path(path_type=Path))
@click.option("--example", default=None, metavar="NAME", help="Submit one of the portal's examples, such as digits.")
@click.option("--code", multiple=True, type=click.Path(path_type=Path), help="File or folder of code. Repeatable.")
@click.option("-r", "--requirement", "requirements", multiple=True, help="Package to install with pip. Repeatable.")
@click.option(
    "--requirements",
    "requirements_file",
    type=click.Path(path_type=Path),
    default=None,
    help="Requirements file for pip, such as requirements.txt.",
)
@click.option("-p", "--param", multiple=True, type=PAIR, help="Parameter of the job, NAME=VALUE. Repeatable.")
@click.option("-e", "--env", multiple=True, type=PAIR, help="Environment variable, NAME=VALUE. Repeatable.")
@overrides
@click.option("--dry-run", is_flag=True, help="Show whether the quota allows the job, without submitting it.")
@click.option("-d", "--detach", is_flag=True, help="Print the job ID and exit without following the log.")
@namespace_option
@output.option
@click.pass_context
def submit(
    context: click.Context,
    /,
    file: Path | None,
    example: str | None,
    code: tuple[Path, ...],
    requirements: tuple[str, ...],
    requirements_file: Path | None,
    param: tuple[tuple[str, str], ...],
    env: tuple[tuple[str, str], ...],
    dry_run: bool,
    detach: bool,
    namespace: str,
    form: str,
    **given: Any,
) -> None:
    """Submit a job and follow its log. The exit code reports the outcome of the job.

    Describe the job with a YAML FILE, with --example, or with options and a program after --. Files that the program's
    arguments name are uploaded.
    """
    session: Session = context.obj
    program = context.meta.get(AFTER_DASHES, ())
    packages = [*requirements, *(jobfile.requirements_of(requirements_file) if requirements_file else ())]
    with session.portal() as portal:
        spec = _requested(portal, file, program, example, with_code=bool(code))
        jobfile.add(spec, code=code, requirements=packages, env=dict(env), params=dict(param))
        if program:
            spec = jobfile.with_program(spec, program, given["framework"])
        spec = jobfile.changed(spec, given)
        _offer_requirements(spec, program, code)
        if dry_run:
            _show_preview(portal.jobs.preview(spec, namespace=namespace), form)
            return
        job = portal.jobs.submit(spec, namespace=namespace)
        _show_submitted(portal, job, form, detach=detach)
        if not detach:
            stream.follow(portal, job.id)


def _requested(
    portal: Client, file: Path | None, program: Sequence[str], example: str | None, *, with_code: bool
) -> dict[str, Any]:
    if (file is not None) + (example is not None) > 1 or not (file or example or program):
        raise click.UsageError("Give a FILE, or --example NAME, or a program after --, such as: -- python train.py")
    if file:
        return jobfile.load(file, with_code=with_code)
    return portal.examples.get(example) if example else {}


def _offer_requirements(spec: Mapping[str, Any], program: Sequence[str], code: Sequence[Path]) -> None:
    """Name the requirements file that the job does not use."""
    found = jobfile.requirements_beside(program, code)
    if found and not spec.get("requirements"):
        print_message(f"{found} is not installed. To install its packages, add: --requirements {found}")


def _show_preview(preview: Mapping[str, Any], form: str) -> None:
    """Print the expected outcome. Raises an error for a job that can never fit."""
    replicas = preview["plan"].get("replicas") or []
    rows = [[str(value) for value in (preview["verdict"], len(replicas), preview["reason"])]]
    output.show(form, Listing(("VERDICT", "REPLICAS", "REASON"), rows, preview, [preview["verdict"]]))
    if preview["verdict"] == "refused":
        raise QuotaExceeded(preview["reason"])


def _show_submitted(portal: Client, job: Job, form: str, *, detach: bool) -> None:
    if form == "table":
        click.echo(job.id)
    else:
        output.show(form, output.one((), (), job.raw, job.id))
    print_message(f"{job.name} is {job.state}. {job.why}".strip())
    print_message(f"Page: {portal.jobs.page_url(job)}")
    if detach:
        print_message(f"Log: regatta logs -f {job.id}\nWait: regatta wait {job.id}\nCancel: regatta cancel {job.id}")


@click.command()
@namespace_option
@click.option("--state", default=None, help="Only jobs in these states: RUNNING,QUEUED, or ACTIVE, or ENDED.")
@click.option("--owner", default=None, help="Only jobs submitted by this account.")
@click.option("-q", "--query", default=None, help="Only jobs whose name contains this text.")
@click.option("--limit", type=click.IntRange(min=1), default=50, show_default=True, help="Number of jobs.")
@output.option
@take
def jobs(session: Session, /, namespace: str, limit: int, form: str, **filters: str | None) -> None:
    """List jobs, newest first."""
    with session.portal() as portal:
        found = [job for job, _ in zip(portal.jobs.list(namespace, **filters), range(limit), strict=False)]
    rows = [(job.id, job.name, job.state, job.created or "", job.why) for job in found]
    heads = ("ID", "NAME", "STATE", "CREATED", "WHY")
    raw = [job.raw for job in found]
    output.show(form, Listing(heads, rows, raw, [job.id for job in found], "No jobs found."))


@click.command()
@click.argument("job_id")
@output.option
@take
def get(session: Session, job_id: str, form: str) -> None:
    """Show a job and its replicas."""
    with session.portal() as portal:
        job = portal.jobs.get(job_id)
    if form == "table":
        click.echo(f"{job.name} ({job.id}) in {job.namespace}, attempt {job.attempt}: {job.state}")
        if job.why:
            click.echo(job.why)
    rows = [(replica.name, replica.state, replica.why) for replica in job.replicas]
    output.show(form, Listing(("REPLICA", "STATE", "WHY"), rows, job.raw, [job.id]))


@click.command()
@click.argument("job_id")
@click.option("--timeout", type=click.FloatRange(min=0), default=None, help="Maximum number of seconds to wait.")
@take
def wait(session: Session, job_id: str, timeout: float | None) -> None:
    """Wait until a job ends. The exit code reports the outcome of the job."""
    with session.portal() as portal:
        stream.exit_with(portal.jobs.wait(job_id, timeout))


@click.command()
@click.argument("job_id")
@take
def cancel(session: Session, job_id: str) -> None:
    """Cancel a job."""
    with session.portal() as portal:
        _show(portal.jobs.cancel(job_id))


@click.command()
@click.argument("job_id")
@take
def pause(session: Session, job_id: str) -> None:
    """Pause a running job: its trainers stop between two steps. Its quota goes on counting."""
    with session.portal() as portal:
        paused = portal.jobs.pause(job_id)
        if not (paused.raw.get("pause") or {}).get("done"):
            print_message("Some processes have not reached their next step yet. The portal goes on with it.")
        _show(paused)


@click.command()
@click.argument("job_id")
@take
def resume(session: Session, job_id: str) -> None:
    """Let a paused job go on."""
    with session.portal() as portal:
        _show(portal.jobs.resume(job_id))


@click.command()
@click.argument("job_id")
@click.option("-y", "--yes", is_flag=True, help="Skip the confirmation.")
@take
def delete(session: Session, job_id: str, yes: bool) -> None:
    """Delete a job that has ended, with its code, log, metrics, files and checkpoints."""
    with session.portal() as portal:
        job = portal.jobs.get(job_id)
        if not yes:
            click.confirm(f"Delete the job {job.name} with everything it kept?", abort=True, err=True)
        portal.jobs.delete(job_id)
    print_message(f"The job {job.name} has been deleted.")


@click.command()
@click.argument("job_id")
@take
def retry(session: Session, job_id: str) -> None:
    """Run a job that has ended again, as its next attempt."""
    with session.portal() as portal:
        _show(portal.jobs.retry(job_id))


@click.command()
@click.argument("job_id")
@click.argument("numbers", nargs=-1, required=True, type=PAIR, metavar="ROLE=NUMBER...")
@take
def scale(session: Session, job_id: str, numbers: tuple[tuple[str, str], ...]) -> None:
    """Change the number of replicas of a running job, for example trainer=4."""
    if odd := next((f"{role}={number}" for role, number in numbers if not number.isdigit()), None):
        raise click.UsageError(f"{odd} is not a number of replicas.")
    with session.portal() as portal:
        _show(portal.jobs.scale(job_id, **{role: int(number) for role, number in numbers}))


def _show(job: Job) -> None:
    print_message(f"{job.name} is {job.state}. {job.why}".strip())


@click.command()
@click.argument("job_id")
@click.option(
    "--submit", "again", is_flag=True, help="Submit the copy, with the given options, instead of printing it."
)
@overrides
@namespace_option
@take
def clone(session: Session, /, job_id: str, again: bool, namespace: str, **given: Any) -> None:
    """Print the specification of a job, including its code. With --submit, submit a copy instead."""
    with session.portal() as portal:
        spec = jobfile.changed(portal.jobs.specification(job_id), given)
        if not again:
            click.echo(output.to_yaml(spec), nl=False)
            return
        job = portal.jobs.submit(spec, namespace=namespace or portal.jobs.get(job_id).namespace)
        _show_submitted(portal, job, "table", detach=True)


@click.command("open")
@click.argument("job_id")
@take
def browse(session: Session, job_id: str) -> None:
    """Open the job page in a browser and print its address."""
    with session.portal() as portal:
        page = portal.jobs.page_url(portal.jobs.get(job_id))
    click.echo(page)
    if not session.outside.browse(page):
        print_message("No browser could be opened. Open the address above.")


@click.command()
@click.argument("job_id")
@click.argument("names", nargs=-1)
@click.option("--all", "everything", is_flag=True, help="Download all artifacts.")
@click.option(
    "--to", type=click.Path(path_type=Path), default=Path(), help="Target folder. It is created if it does not exist."
)
@output.option
@take
def artifacts(session: Session, job_id: str, names: tuple[str, ...], everything: bool, to: Path, form: str) -> None:
    """List the artifacts of a job, or download those in NAMES."""
    with session.portal() as portal:
        found = portal.jobs.artifacts.list(job_id)
        if not names and not everything:
            rows = [(file.name, output.size(file.size), file.sha256) for file in found]
            raw = [vars(file) for file in found]
            kept = [file.name for file in found]
            output.show(form, Listing(("NAME", "SIZE", "SHA-256"), rows, raw, kept, "The job has no artifacts yet."))
            return
        for name in [file.name for file in found] if everything else names:
            place = tree.place_of(to, name)
            place.parent.mkdir(parents=True, exist_ok=True)
            portal.jobs.artifacts.download(job_id, name, place)
            click.echo(place)


COMMANDS = (submit, jobs, get, wait, cancel, pause, resume, delete, retry, scale, clone, browse, artifacts)
