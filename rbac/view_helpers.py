"""What pages have in common: whose they are, the namespace of their address, and deeds that may be refused in words."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, cast

from django.contrib import messages
from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.utils.translation import gettext

from portal.common.errors import Conflict, RegattaError, ValidationFailed
from portal.common.messages import localized
from portal.common.problems import headers_of, problem_of
from rbac.access import namespace_for
from rbac.models import Namespace, User
from rbac.scopes import Scope

LAST_NAMESPACE = "namespace"


def user_of(request: HttpRequest) -> User:
    """Who asks; the views are behind ``login_required``."""
    return cast(User, request.user)


def enter(request: HttpRequest, name: str, scope: Scope) -> Namespace:
    """The namespace of the address, remembered as the one last looked at. Raises NotFound, Forbidden."""
    namespace = namespace_for(user_of(request), name, scope)
    if request.session.get(LAST_NAMESPACE) != name:
        request.session[LAST_NAMESPACE] = name
    return namespace


def attempt(request: HttpRequest, deed: Callable[[], object], done: str) -> bool:
    """Do it and tell the person so on the next page, or tell why not. Whether it was done.

    What is not there and what the person may not do at all stay errors.
    """
    try:
        deed()
    except ValidationFailed as error:
        for texts in error.errors.values():
            messages.error(request, localized(texts[0]))
        return False
    except Conflict as error:
        messages.error(request, localized(error.detail))
        return False
    messages.success(request, gettext(done))
    return True


def refused(request: HttpRequest, template: str, context: Mapping[str, Any], error: RegattaError) -> HttpResponse:
    """The page of a form again, with the message for which it was refused (``error``) and when to come again."""
    problem = problem_of(error)
    page = render(request, template, {**context, "error": problem["detail"]}, status=error.status)
    for name, value in headers_of(problem).items():
        page.headers[name] = value
    return page
