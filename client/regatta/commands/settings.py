"""Commands for the configuration file and for shell completion."""

from __future__ import annotations

from dataclasses import replace

import click
from click.shell_completion import get_completion_class

from regatta import config
from regatta.config import Settings
from regatta.session import Session, take
from regatta.terminal import output
from regatta.terminal.output import Listing, print_message

SHELLS = ("bash", "zsh", "fish")
KEYS = ("server", "namespace")


@click.group("config")
def configuration() -> None:
    """Manage contexts: named pairs of a portal and an account."""


@configuration.command("ls")
@output.option
@take
def contexts(session: Session, form: str) -> None:
    """List the contexts; the current one has a star."""
    known = config.load().contexts
    raw = [
        {"name": name, "server": kept.server, "namespace": kept.namespace, "signed_in": bool(kept.token)}
        for name, kept in known.items()
    ]
    rows = [
        ("*" if name == session.name else "", name, kept.server, kept.namespace, "yes" if kept.token else "no")
        for name, kept in known.items()
    ]
    heads = ("", "NAME", "SERVER", "NAMESPACE", "SIGNED IN")
    output.show(form, Listing(heads, rows, raw, list(known), "No contexts. Run `regatta login` to create one."))


@configuration.command()
@click.argument("name")
def use(name: str) -> None:
    """Make NAME the current context."""
    settings = config.load()
    settings.named(name)
    config.save(replace(settings, current=name))
    print_message(f"Current context: {name} ({settings.named(name).server}).")


@configuration.command("set")
@click.argument("key", type=click.Choice(KEYS))
@click.argument("value")
@take
def put(session: Session, key: str, value: str) -> None:
    """Change the server or the namespace of the current context. Changing the server removes the stored token."""
    settings = config.load()
    kept = settings.contexts.get(session.name, config.Context())
    changed = replace(kept, server=value, token="") if key == "server" else replace(kept, namespace=value)
    config.save(settings.with_context(session.name, changed))
    print_message(f"Set {key} of context {session.name!r} to {value}.")


@configuration.command("rm")
@click.argument("name")
def remove(name: str) -> None:
    """Delete a context. Its token stays valid; run `regatta logout` first to revoke it."""
    settings: Settings = config.load().without(name)
    config.save(settings)
    print_message(f"Deleted context {name!r}.")


@configuration.command("path")
def where() -> None:
    """Print the path of the configuration file."""
    click.echo(config.path())


@click.command()
@click.argument("shell", type=click.Choice(SHELLS))
@click.pass_context
def completion(context: click.Context, shell: str) -> None:
    """Print the completion script for SHELL.

    For bash: regatta completion bash >> ~/.bashrc
    """
    kind = get_completion_class(shell)
    if kind is None:
        raise click.UsageError(f"Completion is not available for {shell}.")
    root = context.find_root().command
    click.echo(kind(root, {}, "regatta", "_REGATTA_COMPLETE").source())


COMMANDS = (configuration, completion)
