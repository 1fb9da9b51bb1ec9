"""The configuration file, and what a shell needs for completion."""

from __future__ import annotations

from dataclasses import replace

import click
from click.shell_completion import get_completion_class

from regatta import config, output
from regatta.config import Settings
from regatta.output import Listing, say
from regatta.session import Session, take

SHELLS = ("bash", "zsh", "fish")
KEYS = ("server", "namespace")


@click.group("config")
def configuration() -> None:
    """Portals and accounts that this computer knows, as named contexts."""


@configuration.command("ls")
@output.option
@take
def contexts(session: Session, form: str) -> None:
    """List the contexts; the one in use has a star."""
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
    output.show(form, Listing(heads, rows, raw, list(known), "There is no context yet. `regatta login` makes one."))


@configuration.command()
@click.argument("name")
def use(name: str) -> None:
    """Mean the context NAME from now on."""
    settings = config.load()
    settings.named(name)
    config.save(replace(settings, current=name))
    say(f"Commands speak with {settings.named(name).server} from now on.")


@configuration.command("set")
@click.argument("key", type=click.Choice(KEYS))
@click.argument("value")
@take
def put(session: Session, key: str, value: str) -> None:
    """Change the server or the namespace of the context in use. Another server forgets the token."""
    settings = config.load()
    kept = settings.contexts.get(session.name, config.Context())
    changed = replace(kept, server=value, token="") if key == "server" else replace(kept, namespace=value)
    config.save(settings.with_context(session.name, changed))
    say(f"{key} of the context {session.name!r} is {value} now.")


@configuration.command("rm")
@click.argument("name")
def remove(name: str) -> None:
    """Forget a context. Its token stays good: sign out first to revoke it."""
    settings: Settings = config.load().without(name)
    config.save(settings)
    say(f"The context {name!r} is forgotten.")


@configuration.command("path")
def where() -> None:
    """Print where the configuration file is."""
    click.echo(config.path())


@click.command()
@click.argument("shell", type=click.Choice(SHELLS))
@click.pass_context
def completion(context: click.Context, shell: str) -> None:
    """Print what makes SHELL complete the commands.

    For bash: regatta completion bash >> ~/.bashrc
    """
    kind = get_completion_class(shell)
    if kind is None:
        raise click.UsageError(f"There is no completion for {shell}.")
    root = context.find_root().command
    click.echo(kind(root, {}, "regatta", "_REGATTA_COMPLETE").source())


COMMANDS = (configuration, completion)
