"""The portal's page of a notebook's address: sends the browser to the origin of the notebook, with a ticket."""

from __future__ import annotations

from urllib.parse import urlencode
from uuid import UUID

from django.contrib.auth.decorators import login_required
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.views.decorators.http import require_safe

from jobs.messages import notebooks as messages
from jobs.notebooks import access, origin, sessions
from portal.common.errors import Conflict, Forbidden
from rbac.portal_origin import origin_of
from rbac.sign_in.sessions import handle_of
from rbac.view_helpers import user_of


@require_safe
@login_required
def open_notebook(request: HttpRequest, ns: str, notebook_id: UUID, path: str) -> HttpResponse:
    """Redirect to the same address on the notebook's origin. Raises NotFound, Forbidden, and Conflict."""
    if getattr(request, "impersonator", None) is not None:
        raise Forbidden(messages.NOTEBOOK_IMPERSONATED())
    try:
        target = access.target_for(user_of(request), ns, notebook_id)
    except Conflict as error:
        raise Conflict(error.detail, back=f"/n/{ns}/notebooks") from None
    portal = origin_of(request)
    ticket = sessions.issue(
        actor=user_of(request), notebook_id=notebook_id, session=handle_of(request.session.session_key), portal=portal
    )
    query = urlencode({"ticket": ticket, "next": request.get_full_path()})
    response = HttpResponseRedirect(f"{origin.url_of(notebook_id, portal)}{target.base_url}{sessions.OPEN}?{query}")
    response.headers["Referrer-Policy"] = "no-referrer"
    return response
