"""Admin page of the cluster: its usage, the queue, the mode of elastic jobs, and what-if simulations."""

from __future__ import annotations

import asyncio
import json
import sys
from typing import Any

from asgiref.sync import sync_to_async
from django.conf import settings
from django.contrib.auth.decorators import login_required
from django.http import HttpRequest, HttpResponse, JsonResponse
from django.shortcuts import redirect, render
from django.template.loader import render_to_string
from django.utils.translation import gettext
from django.utils.translation import gettext_noop as _
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_POST, require_safe

from jobs.backends.local import isolation
from jobs.elastic.controller.observer import Observer
from jobs.elastic.simulation.what_if import LONGEST, MOST_JOBS, POLICIES, Question, Settings, question
from jobs.models import ElasticMode, FailedTask
from jobs.services import elastic_mode
from jobs.web import cluster_overview
from portal.common.clock import now as wall_clock
from rbac.access import require_admin
from rbac.view_helpers import attempt, user_of
from rbac.views.admin import admins_only

# Limit of the duration of a simulation. One runs at a time; further requests are refused meanwhile.
_ANSWER_SECONDS = 20.0
_asking = asyncio.Semaphore(1)
_NUMBERS = {"cool_down": (0.0, 3600.0, 1.0), "work": (1.0, 600.0, 60.0), "window": (1.0, LONGEST / 60, 60.0)}


@require_safe
@admins_only
def page(request: HttpRequest) -> HttpResponse:
    """Render the page. ``?span=`` selects the time range of the chart."""
    return render(request, "admin/cluster.html", _context(request))


def _context(request: HttpRequest) -> dict[str, Any]:
    at, span = wall_clock(), _span(request)
    return {
        "failed_tasks": list(FailedTask.objects.order_by("name")),
        "seen": cluster_overview.seen(at),
        "chart": cluster_overview.chart(at, span),
        "span": span,
        "spans": list(cluster_overview.SPANS),
        "modes": ElasticMode.values,
        "setting": settings.ELASTIC_MODE,
        "isolation": isolation.provided(),
        "isolation_setting": settings.LOCAL_ISOLATION,
        "policies": POLICIES,
        "asked": {
            "policy": "regatta",
            "cool_down": f"{settings.ELASTIC_COOL_DOWN_SECONDS:g}",
            "work": "30",
            "window": "60",
        },
    }


def _span(request: HttpRequest) -> str:
    wanted = request.GET.get("span", "")
    return wanted if wanted in cluster_overview.SPANS else next(iter(cluster_overview.SPANS))


@require_safe
@admins_only
def now(request: HttpRequest) -> HttpResponse:
    """Return the changing parts of the page: the chart's numbers and the tables."""
    at = wall_clock()
    tables = render_to_string("admin/_cluster_tables.html", {"seen": cluster_overview.seen(at)}, request)
    return JsonResponse({"chart": cluster_overview.chart(at, _span(request)), "tables": tables})


@require_POST
@admins_only
def set_mode(request: HttpRequest) -> HttpResponse:
    """Switch the controller of elastic jobs."""

    def deed() -> None:
        elastic_mode.switch(
            actor=user_of(request),
            mode=request.POST.get("mode", ""),
            reason=request.POST.get("reason", ""),
        )

    attempt(request, deed, _("Elastic jobs have been switched."))
    return redirect("admin-cluster")


# The figures of a simulation that are shown, with their labels and factors.
_FIGURES = (
    ("utilisation", _("Cores in use, %"), 100.0),
    ("wait_mean", _("Mean wait until the first trainer, s"), 1.0),
    ("wait_p90", _("Nine of ten wait at most, s"), 1.0),
    ("never_started", _("Jobs that do not begin"), 1.0),
    ("completion_mean", _("Mean time until the end, s"), 1.0),
    ("trainer_seconds", _("Useful seconds of trainers"), 1.0),
    ("jain", _("Fairness (1: all have the same)"), 1.0),
    ("resizes", _("Changes of numbers of trainers"), 1.0),
)


def _shown(value: float | None, scale: float) -> str:
    return "–" if value is None else f"{value * scale:,.6g}" if value * scale >= 1000 else f"{value * scale:.3g}"


# --- What if ----------------------------------------------------------------------------------------------------------
@require_POST
@never_cache
@login_required
async def what_if(request: HttpRequest) -> HttpResponse:
    """Simulate the present jobs with the present and with other settings.

    A separate process runs the simulation, so that it does not delay other requests.
    """
    asked, questions, names = await sync_to_async(_questions)(request)
    problem, answers = "", []
    if not questions:
        problem = gettext("It is not known what there is to share: set the capacity on the page Quotas.")
    elif _asking.locked():
        problem = gettext("Another question is being answered. Try again in a few seconds.")
    else:
        async with _asking:
            answers = await _answers(questions)
        problem = "" if answers else gettext("It took too long. Ask about a shorter time.")
    return await sync_to_async(_answer_page)(request, asked, problem, answers, names)


def _questions(request: HttpRequest) -> tuple[dict[str, str], list[Question], dict[str, str]]:
    """Return the form's values, the questions with the present and with other settings, and the names of the jobs."""
    require_admin(user_of(request))
    asked = {name: request.POST.get(name, "").strip()[:20] for name in ("policy", "cores", *_NUMBERS)}
    at = wall_clock()
    there = Observer().observe(at, queued=MOST_JOBS)
    if there is None:
        return asked, [], {}
    numbers = {name: _number(asked[name], *bounds) for name, bounds in _NUMBERS.items()}
    as_it_is = Settings(cool_down=settings.ELASTIC_COOL_DOWN_SECONDS, work=numbers["work"], window=numbers["window"])
    other = Settings(asked["policy"] if asked["policy"] in POLICIES else POLICIES[0], **numbers)
    before = question(there.cluster, as_it_is)
    after = question(there.cluster, other).with_cores(
        _number(asked["cores"], 0, 1_000_000, 1.0) if asked["cores"] else 0
    )
    return asked, [before, after], dict(there.names)


def _number(text: str, least: float, most: float, unit: float) -> float:
    """Convert a number of the form to its unit, within ``least`` and ``most``. An invalid number becomes ``least``."""
    try:
        value = float(text)
    except ValueError:
        value = least
    return max(least, min(most, value if value == value else least)) * unit


async def _answers(questions: list[Question]) -> list[dict[str, Any]]:
    """Return the results of the simulation; empty if it timed out or its process failed."""
    child = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "jobs.elastic", "what-if"),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.DEVNULL,
        cwd=settings.BASE_DIR,
    )
    try:
        body = json.dumps([each.to_json() for each in questions]).encode()
        output, _errors = await asyncio.wait_for(child.communicate(body), _ANSWER_SECONDS)
    except TimeoutError:
        return []
    finally:
        if child.returncode is None:
            child.kill()
            await child.wait()
    found: list[dict[str, Any]] = json.loads(output) if child.returncode == 0 else []
    return found


def _answer_page(
    request: HttpRequest, asked: dict[str, str], problem: str, answers: list[dict[str, Any]], names: dict[str, str]
) -> HttpResponse:
    context = {**_context(request), "asked": asked, "problem": problem, "most_jobs": MOST_JOBS}
    if answers:
        before, after = answers
        context["figures"] = [
            (gettext(label), *(_shown(each["figures"][name], scale) for each in answers))
            for name, label, scale in _FIGURES
        ]
        pairs = zip(before["jobs"], after["jobs"], strict=True)
        context["fates"] = [(names.get(one["key"], one["key"]), one, other) for one, other in pairs]
    return render(request, "admin/cluster.html", context)
