"""The ``regatta`` command. What a program may want goes to standard output, the rest to standard error.

Exit codes: 0 ok, 1 error, 2 usage, 3 sign-in, 4 not found, 5 quota, 6 network or server, 100 the job failed, 101 it has
not finished, 103 it was cancelled, 130 interrupted. A log stream that is lost is never 0.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import click
import httpx
from rich.console import Console
from rich.table import Table
from rich.text import Text

from client import config, jobfile
from client.api import Client
from client.errors import EXIT_INTERRUPTED, EXIT_OK, NotSignedIn, PortalError
from client.models import Job, Line

STYLES = {"SUCCEEDED": "green", "FAILED": "red", "CANCELLED": "yellow", "RUNNING": "cyan"}

json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON.")
namespace_option = click.option("-n", "--namespace", default="", help="Namespace; your own if left out.")
replica_option = click.option("--replica", default=None, help="Only this replica, for example trainer-0.")


@click.group(context_settings={"help_option_names": ["-h", "--help"]}, epilog="Every command: regatta COMMAND --help")
def regatta() -> None:
    """Submit training jobs and watch them."""


def _portal() -> Client:
    """The portal of the configuration. Raises NotSignedIn where there is no token."""
    settings = config.load()
    if not settings.token:
        raise NotSignedIn(f"You are not signed in to {settings.server}. Run `regatta login`.")
    return _client(settings.server, settings.token)


def _client(server: str, token: str = "") -> Client:
    return Client(server, token, transport=_transport())


def _transport() -> httpx.BaseTransport | None:
    """How requests travel; None is the network. The tests put their own in the context."""
    return click.get_current_context().find_object(httpx.BaseTransport)


@regatta.command()
@click.option("--server", default=None, help="Address of the portal.")
@click.option("-u", "--username", prompt=True)
@click.password_option(confirmation_prompt=False, help="Asked for if left out.")
@click.option("--name", default="regatta command", show_default=True, help="What the token is called in the portal.")
def login(server: str | None, username: str, password: str, name: str) -> None:
    """Get a token and keep it in the configuration file."""
    server = server or config.load().server
    with _client(server) as portal:
        token = portal.token(username, password, name)
    kept = config.save(config.Config(server, token))
    _say(f"Signed in to {server} as {username}; the token is kept in {kept}.")


@regatta.command()
def logout() -> None:
    """Forget the token that is kept. (Revoke it on the portal's page to make it worthless.)"""
    config.forget()
    _say("The token is forgotten.")


@regatta.command()
@json_option
def whoami(as_json: bool) -> None:
    """Who you are to the portal, and where you may work."""
    with _portal() as portal:
        me = portal.me()
    if as_json:
        _print_json(me)
        return
    click.echo(me["username"] + (" (admin)" if me["is_admin"] else ""))
    for namespace in me["namespaces"]:
        click.echo(f"  {namespace['name']}: {namespace['role']}")


@regatta.command()
@click.argument("file", required=False, type=click.Path(path_type=Path))
@click.option("--example", default=None, metavar="NAME", help="Submit one of the portal's examples, such as digits.")
@click.option(
    "--trainers", type=click.IntRange(min=1), default=None, help="Number of trainers, in place of the file's."
)
@click.option("-f", "--follow", is_flag=True, help="Print the log until the job ends; the exit code is its outcome.")
@namespace_option
def submit(file: Path | None, example: str | None, trainers: int | None, follow: bool, namespace: str) -> None:
    """Submit the job of FILE (YAML) and print its id."""
    if (file is None) == (example is None):
        raise click.UsageError("Give either FILE or --example NAME.")
    with _portal() as portal:
        spec = jobfile.load(file) if file else portal.example(str(example))
        if trainers is not None:
            spec.setdefault("roles", {}).setdefault("trainer", {})["replicas"] = trainers
        job = portal.submit(spec, namespace=namespace)
        click.echo(job.id)
        _say(f"{job.name} is {job.state}. {job.why}".strip())
        _say(f"Log: regatta logs -f {job.id}\nWait: regatta wait {job.id}\nEnd it: regatta cancel {job.id}")
        if follow:
            _follow(portal, job.id, None)


@regatta.command("ls")
@namespace_option
@click.option("--state", default=None, help="Only jobs in this state, for example RUNNING.")
@click.option("-q", "--query", default=None, help="Only jobs whose name holds this.")
@click.option("--limit", type=click.IntRange(min=1), default=50, show_default=True)
@json_option
def ls(namespace: str, state: str | None, query: str | None, limit: int, as_json: bool) -> None:
    """List jobs, newest first."""
    with _portal() as portal:
        jobs = [job for job, _ in zip(portal.jobs(namespace, state=state, query=query), range(limit), strict=False)]
    if as_json:
        _print_json([job.raw for job in jobs])
        return
    rows = ((job.id, job.name, job.state, job.created or "", job.why) for job in jobs)
    _print_table(("ID", "NAME", "STATE", "CREATED", "WHY"), rows)


@regatta.command()
@click.argument("job_id")
@json_option
def status(job_id: str, as_json: bool) -> None:
    """Show one job and its replicas."""
    with _portal() as portal:
        job = portal.job(job_id)
    if as_json:
        _print_json(job.raw)
        return
    click.echo(f"{job.name} ({job.id}) in {job.namespace}, attempt {job.attempt}: {job.state}")
    if job.why:
        click.echo(job.why)
    _print_table(("REPLICA", "STATE", "WHY"), ((replica.name, replica.state, replica.why) for replica in job.replicas))


@regatta.command()
@click.argument("job_id")
@click.option("-f", "--follow", is_flag=True, help="Go on until the job ends; the exit code is its outcome.")
@click.option("--after", type=click.IntRange(min=0), default=0, help="Begin after this sequence number.")
@replica_option
@json_option
def logs(job_id: str, follow: bool, after: int, replica: str | None, as_json: bool) -> None:
    """Print a job's log. Ctrl-C leaves the job running."""
    with _portal() as portal:
        if follow:
            _follow(portal, job_id, replica, after=after, as_json=as_json)
        for line in portal.logs(job_id, after, replica=replica):
            _print_line(line, as_json)


def _follow(portal: Client, job_id: str, replica: str | None, *, after: int = 0, as_json: bool = False) -> None:
    """Print the log to its end, then exit with the job's outcome."""
    for line in portal.follow(job_id, after, replica=replica):
        _print_line(line, as_json)
    _exit_with(portal.job(job_id))


@regatta.command()
@click.argument("job_id")
@click.option("--timeout", type=click.FloatRange(min=0), default=None, help="Seconds to wait at most.")
def wait(job_id: str, timeout: float | None) -> None:
    """Wait until a job ends; the exit code is its outcome."""
    with _portal() as portal:
        _exit_with(portal.wait(job_id, timeout))


@regatta.command()
@click.argument("job_id")
def cancel(job_id: str) -> None:
    """Ask for the end of a job."""
    with _portal() as portal:
        job = portal.cancel(job_id)
    _say(f"{job.name} is {job.state}. {job.why}".strip())


@regatta.command()
@click.argument("job_id")
@json_option
def artifacts(job_id: str, as_json: bool) -> None:
    """List what a job has left."""
    with _portal() as portal:
        found = portal.artifacts(job_id)
    if as_json:
        _print_json([vars(artifact) for artifact in found])
        return
    _print_table(("NAME", "BYTES", "SHA-256"), ((file.name, str(file.size), file.sha256) for file in found))


@regatta.command()
@click.argument("job_id")
@click.argument("name", required=False)
@click.option("-o", "--output", type=click.Path(path_type=Path), default=None, help="File or directory to write to.")
def download(job_id: str, name: str | None, output: Path | None) -> None:
    """Fetch the artifact NAME of a job, or all of them."""
    target = output or Path()
    if name is None and output is not None and not output.is_dir():
        raise click.UsageError("Without NAME, --output must be a directory that is there.")
    with _portal() as portal:
        for each in [name] if name else [artifact.name for artifact in portal.artifacts(job_id)]:
            file = target / Path(each).name if target.is_dir() else target
            portal.download(job_id, each, file)
            click.echo(file)


def _exit_with(job: Job) -> None:
    _say(f"{job.name} is {job.state}. {job.why}".strip())
    sys.exit(job.exit_code)


def _print_line(line: Line, as_json: bool) -> None:
    click.echo(json.dumps(vars(line), ensure_ascii=False) if as_json else f"{line.replica:<10} {line.text}")


def _print_json(body: Any) -> None:
    click.echo(json.dumps(body, indent=2, ensure_ascii=False))


def _print_table(heads: Iterable[str], rows: Iterable[Iterable[str]]) -> None:
    """Cells are shown as they are: what users wrote is no markup."""
    table = Table(*heads, box=None, pad_edge=False)
    for row in rows:
        table.add_row(*(Text(cell, style=STYLES.get(cell, "")) for cell in row))
    # A pipe gets whole columns; only a person's window has a width.
    Console(width=None if sys.stdout.isatty() else 240, highlight=False).print(table)


def _say(text: str) -> None:
    click.echo(text, err=True)


def _explain(error: PortalError) -> None:
    _say(f"regatta: {error.detail}")
    for name, sentences in error.fields.items():
        _say(f"  {name}: {' '.join(sentences)}")


def main(arguments: list[str] | None = None, transport: httpx.BaseTransport | None = None) -> int:
    """Run the command and return its exit code. Never a traceback for what the portal, the network or a file does."""
    try:
        regatta.main(arguments, prog_name="regatta", standalone_mode=False, obj=transport)
    except PortalError as error:
        _explain(error)
        return error.exit_code
    except click.exceptions.Abort:
        return EXIT_INTERRUPTED
    except KeyboardInterrupt:
        _say("Interrupted; a job that was submitted goes on.")
        return EXIT_INTERRUPTED
    except click.ClickException as error:
        error.show()
        return error.exit_code
    except SystemExit as leave:
        return leave.code if isinstance(leave.code, int) else EXIT_OK
    return EXIT_OK
