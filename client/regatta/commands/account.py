"""Commands for sign-in, namespaces, quota and access tokens."""

from __future__ import annotations

import sys
from dataclasses import replace
from typing import Any

import click

from regatta import loopback
from regatta.config import Context
from regatta.errors import NotSignedIn, PortalError
from regatta.session import Session, take
from regatta.terminal import output
from regatta.terminal.output import Listing, joined, print_message

_TIMES = ("expires", "last_used")
BYTES = ("memory", "storage")


@click.command()
@click.option("--server", default=None, help="Address of the portal. Default: that of the context.")
@click.option("-u", "--username", default=None, help="Sign in with a password instead of the browser.")
@click.option("--password", default=None, help="Password for --username. Prompts if omitted, which is safer.")
@click.option("--code", default=None, help="Two-factor code, if the account requires one.")
@click.option("--token", default=None, help="Store this token; - reads it from standard input.")
@click.option("--no-browser", is_flag=True, help="Print the address to open, on this or another computer.")
@click.option("--name", default=loopback.name_of_this_computer, help="Name of the token in the portal.")
@take
def login(
    session: Session,
    server: str | None,
    username: str | None,
    password: str | None,
    code: str | None,
    token: str | None,
    no_browser: bool,
    name: str,
) -> None:
    """Sign in and store an access token in the configuration file.

    Without options, opens a browser page where you approve access for this computer.
    """
    context = _bare(session, server)
    if token:
        secret = sys.stdin.readline().strip() if token == "-" else token  # noqa: S105  the dash of standard input
    elif username:
        password = password or click.prompt("Password", hide_input=True, err=True)
        with session.reach(context) as portal:
            secret = portal.tokens.sign_in(username, password, name, code=code)
    else:
        secret = loopback.sign_in(session, context, name, no_browser=no_browser)
    _keep(session, replace(context, token=secret))


def _bare(session: Session, server: str | None) -> Context:
    """Return the context to sign in to, without its token."""
    kept = session.context()
    if server and server.rstrip("/") != kept.server.rstrip("/"):
        return Context(server.rstrip("/"))
    return replace(kept, token="")


def _keep(session: Session, context: Context) -> None:
    """Store a token after testing it. Raises NotSignedIn if it is not valid."""
    with session.reach(context) as portal:
        me = portal.me()
    session.keep(session.name, context)
    print_message(f"Signed in to {context.server} as {me['username']} (context {session.name!r}).")


@click.command()
@take
def logout(session: Session) -> None:
    """Revoke the stored access token and remove it from the configuration file."""
    context = session.context()
    if not context.token:
        print_message(f"You are not signed in to {context.server}.")
        return
    try:
        with session.reach(context) as portal:
            portal.tokens.revoke_current()
    except NotSignedIn:
        print_message("The token was already invalid.")
    except PortalError as error:
        print_message(
            f"The token could not be revoked ({error.detail}). It was only removed from this computer. "
            "Revoke it in the portal, on the page Access tokens."
        )
    session.keep(session.name, replace(context, token=""))
    print_message("Signed out.")


@click.command()
@output.option
@take
def whoami(session: Session, form: str) -> None:
    """Show your account, your namespaces and your role in each."""
    with session.portal() as portal:
        me = portal.me()
    own = me["namespaces"]
    if form == "table":
        click.echo(me["username"] + (" (admin)" if me["is_admin"] else ""))
    rows = [(one["name"], one["role"]) for one in own]
    output.show(form, Listing(("NAMESPACE", "ROLE"), rows, me, [me["username"]]))


@click.group()
def ns() -> None:
    """List namespaces and choose the current one."""


@ns.command("ls")
@output.option
@take
def list_namespaces(session: Session, form: str) -> None:
    """List the namespaces you can see; the current one has a star."""
    with session.portal() as portal:
        found = list(portal.namespaces.list())
        meant = portal.namespaces.default()
    rows = [("*" if one["name"] == meant else "", one["name"], str(one.get("role") or "")) for one in found]
    output.show(form, Listing(("", "NAME", "ROLE"), rows, found, [one["name"] for one in found]))


@ns.command()
@click.argument("name")
@take
def use(session: Session, name: str) -> None:
    """Make NAME the current namespace."""
    with session.portal() as portal:
        portal.namespaces.quota(name)  # checks that it exists and is visible
    session.keep(session.name, replace(session.context(), namespace=name))
    print_message(f"Current namespace: {name}.")


@click.command()
@click.option("-n", "--namespace", default="", help="Namespace. Default: the current one.")
@output.option
@take
def quota(session: Session, namespace: str, form: str) -> None:
    """Show usage, reservations, limits and free capacity of a namespace."""
    with session.portal() as portal:
        found = portal.namespaces.quota(namespace or portal.namespaces.default())
    columns = ("used", "reserved", "limits", "headroom")
    resources = sorted({resource for column in columns for resource in found.get(column) or {}})
    tables = [found.get(column) or {} for column in columns]
    rows = [(resource, *(_amount(resource, table.get(resource)) for table in tables)) for resource in resources]
    output.show(form, Listing(("RESOURCE", "USED", "RESERVED", "LIMIT", "FREE"), rows, found, resources))


def _amount(resource: str, amount: Any) -> str:
    if amount is None:
        return "-"
    return output.size(float(amount)) if resource in BYTES else output.number(float(amount))


@click.group()
def token() -> None:
    """Manage access tokens, which let programs act as you."""


@token.command("ls")
@output.option
@take
def list_tokens(session: Session, form: str) -> None:
    """List your access tokens, without their secrets."""
    with session.portal() as portal:
        found = list(portal.tokens.list())
    rows = [
        (each["id"], each["name"], joined(each["scopes"]) or "all", *(each[when] or "never" for when in _TIMES))
        for each in found
    ]
    heads = ("ID", "NAME", "MAY DO", "ENDS", "LAST USED")
    output.show(form, Listing(heads, rows, found, [each["id"] for each in found], "You have no tokens."))


@token.command("create")
@click.argument("name")
@click.option(
    "--scope", "scopes", multiple=True, help="Permission of the token, such as job:read. Repeatable. Default: all."
)
@click.option("--days", type=click.IntRange(min=1), default=None, help="Days until the token expires. Default: never.")
@take
def create_token(session: Session, name: str, scopes: tuple[str, ...], days: int | None) -> None:
    """Create an access token and print its secret, which is shown only once."""
    with session.portal() as portal:
        made = portal.tokens.create(name, scopes=scopes, days=days)
    click.echo(made["token"])
    print_message(f"Save it now; it is not shown again. To revoke it: regatta token revoke {made['id']}")


@token.command("revoke")
@click.argument("token_id")
@take
def revoke_token(session: Session, token_id: str) -> None:
    """Revoke an access token immediately."""
    with session.portal() as portal:
        portal.tokens.revoke(token_id)
    print_message("The token is revoked.")


COMMANDS = (login, logout, whoami, ns, quota, token)
