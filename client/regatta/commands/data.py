"""Commands for datasets: upload, download, preview and sharing."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import click

from regatta.errors import PortalError
from regatta.models import Dataset, Version
from regatta.session import Session, take
from regatta.terminal import output, progress
from regatta.terminal.output import Listing, joined, print_message

LONGEST_CELL = 60


@click.group()
def data() -> None:
    """Manage datasets. A dataset is named namespace/name, such as public/digits."""


def _full(portal: Any, name: str) -> str:
    """Add the current namespace to a name without one."""
    return name if "/" in name else f"{portal.namespaces.default()}/{name}"


@data.command("ls")
@click.argument("name", required=False)
@click.option("-n", "--namespace", default="", help="Only datasets of this namespace.")
@click.option("-q", "--query", default=None, help="Only datasets whose name contains this text.")
@output.option
@take
def list_data(session: Session, name: str | None, namespace: str, query: str | None, form: str) -> None:
    """List the datasets you can read. With NAME, list its versions, newest first."""
    with session.portal() as portal:
        if name:
            _show_versions(portal.datasets.get(_full(portal, name)), form)
            return
        found = list(portal.datasets.list(namespace, query))
    rows = [(one.full_name, one.visibility, str(one.latest or ""), *_amounts(one), one.description) for one in found]
    heads = ("NAME", "SEEN BY", "VERSION", "SIZE", "RECORDS", "WHAT")
    raw = [one.raw for one in found]
    output.show(form, Listing(heads, rows, raw, [one.full_name for one in found], "No datasets found."))


def _show_versions(found: Dataset, form: str) -> None:
    rows = [
        (str(one.number), one.state, str(one.files), *_amounts(one), one.sealed or "", one.why)
        for one in sorted(found.versions, key=lambda one: -one.number)
    ]
    heads = ("VERSION", "STATE", "FILES", "SIZE", "RECORDS", "SEALED", "WHY")
    output.show(form, Listing(heads, rows, found.raw, [row[0] for row in rows], "The dataset has no versions yet."))


def _amounts(one: Dataset | Version) -> tuple[str, str]:
    """Return size and number of records."""
    return output.size(one.size), "" if one.records is None else f"{one.records:,}"


@data.command()
@click.argument("name")
@click.argument("sources", nargs=-1, required=True, type=click.Path(path_type=Path))
@click.option("--new", "fresh", is_flag=True, help="Start a new version instead of resuming an interrupted upload.")
@output.option
@take
def upload(session: Session, name: str, sources: tuple[Path, ...], fresh: bool, form: str) -> None:
    """Upload files and folders as a new version of the dataset NAME. Creates the dataset if it does not exist.

    To resume an interrupted upload, run the same command again.
    """
    with session.portal() as portal, progress.shown() as bar:
        full = _full(portal, name)
        version: Version = portal.datasets.upload(full, *sources, fresh=fresh, progress=bar)
    print_message(f"Version {version.number} of {full} is sealed: {version.files} files, {output.size(version.size)}.")
    if form == "table":
        click.echo(f"{full}@{version.number}")
        return
    output.show(form, output.one((), (), vars(version), f"{full}@{version.number}"))


@data.command()
@click.argument("name")
@click.argument("target", type=click.Path(path_type=Path), default=Path())
@click.option("--version", type=click.IntRange(min=1), default=None, help="Version number. Default: the newest.")
@take
def download(session: Session, name: str, target: Path, version: int | None) -> None:
    """Download the dataset NAME to the folder TARGET. Files that are already there are skipped."""
    with session.portal() as portal, progress.shown() as bar:
        files = portal.datasets.download(_full(portal, name), target, version=version, progress=bar)
    print_message(f"Downloaded {len(files)} files to {target}.")


@data.command()
@click.argument("name")
@click.option("--version", type=click.IntRange(min=1), default=None, help="Version number. Default: the newest.")
@click.option("--limit", type=click.IntRange(1, 100), default=20, show_default=True, help="Number of records.")
@output.option
@take
def preview(session: Session, name: str, version: int | None, limit: int, form: str) -> None:
    """Show the first records of a dataset, and its size."""
    with session.portal() as portal:
        full = _full(portal, name)
        number = version or portal.datasets.get(full).latest
        if number is None:
            raise PortalError(f"{full} has no sealed version yet. To upload one: regatta data upload {full} FILES")
        found = portal.datasets.preview(full, number, limit=limit)
    print_message(_summary(f"{full}@{number}", found))
    heads = [column["name"] for column in found["columns"]] or ["RECORD"]
    rows = [[_short(value) for value in record] for record in found["records"]]
    output.show(
        form, Listing(heads, rows, found, [row[0] for row in rows], "The dataset has no records that jobs can read.")
    )


def _summary(name: str, found: Mapping[str, Any]) -> str:
    """Return a summary of the version, the file that is shown, and why no more is shown."""
    whole = found["statistics"]
    records = "" if whole["records"] is None else f"records {whole['records']:,}, chunks {whole['chunks']:,}, "
    summary = f"{name}: {found['format']}, {records}files {whole['files']:,}, {output.size(whole['size'])}."
    shown = f" The first of {found['file']}:" if found["file"] else ""
    further = f" {found['more_columns']} further columns are not shown." if found["more_columns"] else ""
    return f"{summary}{further} {found['why']}".rstrip() + shown


def _short(value: Any) -> str:
    text = value if isinstance(value, str) else "" if value is None else json.dumps(value, ensure_ascii=False)
    return text if len(text) <= LONGEST_CELL else f"{text[: LONGEST_CELL - 1]}…"


@data.command()
@click.argument("name")
@output.option
@take
def uses(session: Session, name: str, form: str) -> None:
    """List the most recent jobs that use the dataset NAME, of the jobs you can see."""
    with session.portal() as portal:
        found = portal.datasets.uses(_full(portal, name))
    rows = [(one.name, one.state, one.namespace, one.owner, one.version, one.began) for one in found]
    heads = ("JOB", "STATE", "NAMESPACE", "OWNER", "VERSION", "SUBMITTED")
    raw = [vars(one) for one in found]
    names = [one.name for one in found]
    output.show(form, Listing(heads, rows, raw, names, "No jobs found that use it."))


@data.command()
@click.argument("name")
@click.argument("namespaces", nargs=-1)
@click.option("--public", is_flag=True, help="Everyone on the portal can read it.")
@click.option("--private", is_flag=True, help="Only its own namespace can read it.")
@take
def share(session: Session, name: str, namespaces: tuple[str, ...], public: bool, private: bool) -> None:
    """Set which other namespaces can read a dataset: exactly NAMESPACES, all, or none."""
    if public + private + bool(namespaces) != 1:
        raise click.UsageError("Give one of: NAMESPACES, --public, --private.")
    with session.portal() as portal:
        full = _full(portal, name)
        found = portal.datasets.share(full, namespaces)
        if found.visibility != ("public" if public else "private"):
            found = portal.datasets.change(full, visibility="public" if public else "private")
    readers = "everyone" if found.visibility == "public" else joined(found.shared_with) or "no one else"
    print_message(f"{full} can be read by its namespace and {readers}.")


@data.command("rm")
@click.argument("name")
@click.option("-y", "--yes", is_flag=True, help="Skip the confirmation.")
@take
def remove(session: Session, name: str, yes: bool) -> None:
    """Delete a dataset. You can restore it with `regatta data restore` for a limited time."""
    with session.portal() as portal:
        full = _full(portal, name)
        if not yes:
            click.confirm(f"Delete {full} with all its versions?", abort=True, err=True)
        portal.datasets.remove(full)
    print_message(f"Deleted {full}. To restore it: regatta data restore {full}")


@data.command()
@click.argument("name")
@take
def restore(session: Session, name: str) -> None:
    """Restore a deleted dataset."""
    with session.portal() as portal:
        found = portal.datasets.restore(_full(portal, name))
    print_message(f"Restored {found.full_name}.")


COMMANDS = (data,)
