"""Overview of the sign-in settings for admins: each value, and the environment variable that changes it. It shows no
secret, only whether one is set."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from typing import NamedTuple

from django.conf import settings
from django.urls import reverse
from django.utils.timesince import timesince
from django.utils.translation import gettext as _
from django_otp.plugins.otp_totp.models import TOTPDevice

from rbac.models import User

_TITLES = {
    "oidc": "OpenID Connect",
    "github": "GitHub",
    "gitlab": "GitLab",
    "google-oauth2": "Google",
    "baidu": "Baidu",
}
# Each provider is enabled by its id and secret; some have an address in addition.
_VARIABLES = {
    "oidc": ("REGATTA_OIDC_ID", "REGATTA_OIDC_SECRET", "REGATTA_OIDC_ISSUER"),
    "github": ("REGATTA_GITHUB_ID", "REGATTA_GITHUB_SECRET"),
    "gitlab": ("REGATTA_GITLAB_ID", "REGATTA_GITLAB_SECRET", "REGATTA_GITLAB_URL"),
    "google-oauth2": ("REGATTA_GOOGLE_ID", "REGATTA_GOOGLE_SECRET"),
    "baidu": ("REGATTA_BAIDU_ID", "REGATTA_BAIDU_SECRET"),
}


class Setting(NamedTuple):
    """One row: its subject, its value, and the variables that change it (empty: it is fixed)."""

    about: str
    value: str
    variables: tuple[str, ...] = ()
    # Whether an operator should review it.
    doubtful: bool = False


class ProviderSetting(NamedTuple):
    """One external provider. ``redirect`` is the address to register with the provider."""

    title: str
    configured: bool
    has_secret: bool
    redirect: str
    variables: tuple[str, ...]


def overview() -> list[Setting]:
    """Return the settings of accounts, sessions and e-mails, in the reader's language."""
    return [*_accounts(), *_guards(), *_emails()]


def providers(absolute: Callable[[str], str]) -> list[ProviderSetting]:
    """Return all external providers, configured or not. ``absolute`` makes a full address of a path."""
    return [
        ProviderSetting(
            title=settings.SIGN_IN_PROVIDERS.get(name, title),
            configured=name in settings.SIGN_IN_PROVIDERS,
            has_secret=bool(getattr(settings, f"SOCIAL_AUTH_{name.upper().replace('-', '_')}_SECRET", "")),
            redirect=absolute(reverse("complete-provider", args=[name])),
            variables=_VARIABLES[name],
        )
        for name, title in _TITLES.items()
    ]


def _accounts() -> Iterator[Setting]:
    sign_up = {
        "open": _("everybody who confirms an e-mail address"),
        "approval": _("everybody who confirms an e-mail address and is let in by an admin"),
        "closed": _("nobody; admins open accounts"),
    }
    yield Setting(_("Who may open an account"), sign_up[settings.SIGN_UP], ("REGATTA_SIGN_UP",))
    yield Setting(_("Confirmation of the address"), _("always, by a letter whose link is good for a day"))
    shortest = _("at least 12 characters, none of the usual ones; kept as Argon2 hashes")
    yield Setting(_("Passwords"), shortest)
    reset = _("by a letter whose link is good for %(length)s") % {"length": _span(settings.PASSWORD_RESET_TIMEOUT)}
    yield Setting(_("Forgotten passwords"), reset)


def _guards() -> Iterator[Setting]:
    without = User.objects.filter(is_superuser=True, is_active=True).exclude(
        pk__in=TOTPDevice.objects.filter(confirmed=True).values("user")
    )
    count = without.count()
    required = settings.ADMIN_SECOND_FACTOR
    of_admins = _("asked of all admins") if required else _("as everybody likes; not asked of admins")
    lacking = _("admins without one: %(count)s") % {"count": count} if count else _("all admins have one")
    yield Setting(
        _("Second factor"), f"{of_admins}; {lacking}", ("REGATTA_ADMIN_SECOND_FACTOR",), doubtful=not required
    )
    pause = _span(settings.AXES_COOLOFF_TIME.total_seconds())
    guessing = _("after %(count)s wrong passwords for a name from one address, a pause of %(length)s")
    lock_out = guessing % {"count": settings.AXES_FAILURE_LIMIT, "length": pause}
    yield Setting(_("Guessing"), lock_out, ("REGATTA_SIGN_IN_RATE",))
    lifetime = _("end %(length)s after the last sign-in; listed, and each can be ended") % {
        "length": _span(settings.SESSION_COOKIE_AGE)
    }
    yield Setting(_("Sessions"), lifetime)
    encrypted = _("cookies travel encrypted only") if settings.HTTPS else _("cookies travel over plain HTTP too")
    yield Setting(_("Encryption"), encrypted, ("REGATTA_HTTPS",), doubtful=not settings.HTTPS)
    yield Setting(_("Names of the portal"), ", ".join(settings.ALLOWED_HOSTS), ("REGATTA_ALLOWED_HOSTS",))
    proxies = ", ".join(map(str, settings.TRUSTED_PROXIES)) or _("none")
    yield Setting(_("Proxies whose word is taken"), proxies, ("REGATTA_TRUSTED_PROXIES",))


def _emails() -> Iterator[Setting]:
    by_smtp = settings.EMAIL_BACKEND.endswith("smtp.EmailBackend")
    where = _("printed to the portal's own output; nobody gets them")
    if by_smtp:
        where = _("sent through %(server)s, %(security)s") % {
            "server": f"{settings.EMAIL_HOST}:{settings.EMAIL_PORT}",
            "security": _("encrypted") if settings.EMAIL_USE_TLS or settings.EMAIL_USE_SSL else _("not encrypted"),
        }
    yield Setting(_("Letters"), where, ("REGATTA_MAIL_SERVER",), doubtful=not by_smtp)
    yield Setting(_("Sender of letters"), settings.DEFAULT_FROM_EMAIL, ("REGATTA_MAIL_FROM",))


def _span(seconds: float) -> str:
    """Return ``1 week``, ``1 hour``, ``20 s``."""
    if seconds < _MINUTE:
        return _("%(count)s s") % {"count": round(seconds)}
    return timesince(_EPOCH, _EPOCH + timedelta(seconds=seconds))


_MINUTE = 60.0
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
