"""Helpers of pages: the account of the request, the namespace of the address, and actions that may be refused with a
message."""

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
    """Return the account of the request; the views use ``login_required``."""
    return cast(User, request.user)


def enter(request: HttpRequest, name: str, scope: Scope) -> Namespace:
    """Return the namespace of the address, and record it as the one opened last. Raises NotFound, Forbidden."""
    namespace = namespace_for(user_of(request), name, scope)
    if request.session.get(LAST_NAMESPACE) != name:
        request.session[LAST_NAMESPACE] = name
    return namespace


def attempt(request: HttpRequest, action: Callable[[], object], done: str) -> bool:
    """Run ``action`` and queue its result, or the reason of its refusal, as a message for the next page. Return whether
    it was done.

    Catches only ValidationFailed and Conflict; other errors propagate.
    """
    try:
        action()
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
    """Render the page of a form again, with the message of the refusal (``error``) and its ``Retry-After``."""
    problem = problem_of(error)
    page = render(request, template, {**context, "error": problem["detail"]}, status=error.status)
    for name, value in headers_of(problem).items():
        page.headers[name] = value
    return page
