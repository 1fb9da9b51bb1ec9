"""Signing in and out, who one is, where one may work, and tokens."""

from __future__ import annotations

import sys
from dataclasses import replace
from typing import Any

import click

from regatta import loopback, output
from regatta.config import Context
from regatta.errors import NotSignedIn, PortalError
from regatta.output import Listing, joined, say
from regatta.session import Session, take

_TIMES = ("expires", "last_used")
BYTES = ("memory", "storage")


@click.command()
@click.option("--server", default=None, help="Address of the portal; that of the context if left out.")
@click.option("-u", "--username", default=None, help="Sign in with a password instead of the browser.")
@click.option("--password", default=None, help="Asked for if left out; better left out.")
@click.option("--code", default=None, help="Code of the second factor, where the account has one.")
@click.option("--token", default=None, help="Keep this token; - reads it from standard input.")
@click.option("--no-browser", is_flag=True, help="Print the address to be opened, on this or another computer.")
@click.option("--name", default=loopback.name_of_this_computer, help="What the token is called in the portal.")
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
    """Get a token and keep it in the configuration file.

    Without options the browser opens and asks whether this computer may act as you.
    """
    context = _bare(session, server)
    if token:
        secret = sys.stdin.readline().strip() if token == "-" else token  # noqa: S105  the dash of standard input
    elif username:
        password = password or click.prompt("Password", hide_input=True, err=True)
        with session.reach(context) as portal:
            secret = portal.token(username, password, name, code=code)
    else:
        secret = loopback.sign_in(session, context, name, no_browser=no_browser)
    _keep(session, replace(context, token=secret))


def _bare(session: Session, server: str | None) -> Context:
    """The context that is to be signed in to, without the token that it may have."""
    kept = session.context()
    if server and server.rstrip("/") != kept.server.rstrip("/"):
        return Context(server.rstrip("/"))
    return replace(kept, token="")


def _keep(session: Session, context: Context) -> None:
    """Keep a token that is good. Raises NotSignedIn where it is not."""
    with session.reach(context) as portal:
        me = portal.me()
    session.keep(session.name, context)
    say(f"Signed in to {context.server} as {me['username']} (context {session.name!r}).")


@click.command()
@take
def logout(session: Session) -> None:
    """Revoke the token that is kept, and forget it."""
    context = session.context()
    if not context.token:
        say(f"You are not signed in to {context.server}.")
        return
    try:
        with session.reach(context) as portal:
            portal.revoke_own_token()
    except NotSignedIn:
        say("The token was worthless already.")
    except PortalError as error:
        say(f"The token could not be revoked ({error.detail}) and is forgotten here; revoke it on the portal's page.")
    session.keep(session.name, replace(context, token=""))
    say("Signed out.")


@click.command()
@output.option
@take
def whoami(session: Session, form: str) -> None:
    """Who you are to the portal, and where you may work."""
    with session.portal() as portal:
        me = portal.me()
    rooms = me["namespaces"]
    if form == "table":
        click.echo(me["username"] + (" (admin)" if me["is_admin"] else ""))
    rows = [(room["name"], room["role"]) for room in rooms]
    output.show(form, Listing(("NAMESPACE", "ROLE"), rows, me, [me["username"]]))


@click.group()
def ns() -> None:
    """Namespaces: where you may work, and which one is meant."""


@ns.command("ls")
@output.option
@take
def list_namespaces(session: Session, form: str) -> None:
    """List the namespaces that you may see."""
    with session.portal() as portal:
        found = list(portal.namespaces())
        meant = portal.own_namespace()
    rows = [("*" if room["name"] == meant else "", room["name"], str(room.get("role") or "")) for room in found]
    output.show(form, Listing(("", "NAME", "ROLE"), rows, found, [room["name"] for room in found]))


@ns.command()
@click.argument("name")
@take
def use(session: Session, name: str) -> None:
    """Mean NAME wherever no namespace is given."""
    with session.portal() as portal:
        portal.quota(name)  # it is there, and one may see it
    session.keep(session.name, replace(session.context(), namespace=name))
    say(f"Commands work in {name} from now on.")


@click.command()
@click.option("-n", "--namespace", default="", help="Namespace; the one in use if left out.")
@output.option
@take
def quota(session: Session, namespace: str, form: str) -> None:
    """What the namespace uses, holds and may use."""
    with session.portal() as portal:
        found = portal.quota(namespace or portal.own_namespace())
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
    """Tokens with which programs act as you."""


@token.command("ls")
@output.option
@take
def list_tokens(session: Session, form: str) -> None:
    """List your tokens. Their secrets are told nowhere again."""
    with session.portal() as portal:
        found = list(portal.tokens())
    rows = [
        (each["id"], each["name"], joined(each["scopes"]) or "all", *(each[when] or "never" for when in _TIMES))
        for each in found
    ]
    heads = ("ID", "NAME", "MAY DO", "ENDS", "LAST USED")
    output.show(form, Listing(heads, rows, found, [each["id"] for each in found], "You have no tokens."))


@token.command("create")
@click.argument("name")
@click.option("--scope", "scopes", multiple=True, help="What it may do, such as job:read; again for more.")
@click.option("--days", type=click.IntRange(min=1), default=None, help="How long it is good; for ever if left out.")
@take
def create_token(session: Session, name: str, scopes: tuple[str, ...], days: int | None) -> None:
    """Make a token and print its secret, this once."""
    with session.portal() as portal:
        made = portal.create_token(name, scopes=scopes, days=days)
    click.echo(made["token"])
    say(f"Keep it now; it is not shown again. To revoke it: regatta token revoke {made['id']}")


@token.command("revoke")
@click.argument("token_id")
@take
def revoke_token(session: Session, token_id: str) -> None:
    """Make a token worthless at once."""
    with session.portal() as portal:
        portal.revoke_token(token_id)
    say("The token is revoked.")


COMMANDS = (login, logout, whoami, ns, quota, token)
