"""What is pressed on the pages of load tests."""

from __future__ import annotations

from django.http import HttpRequest, HttpResponse
from django.urls import reverse
from django.utils.translation import gettext as _

from apps.accounts.roles import Action
from apps.dashboard import pages
from apps.dashboard.access import person
from apps.dashboard.pages import action
from apps.loadtests import selectors, services
from apps.loadtests.models import LoadRun
from apps.loadtests.states import CANCELLED
from apps.serving import selectors as serving


def _queued(request: HttpRequest, row: LoadRun) -> HttpResponse:
    text = _("Run #%(number)s is queued.") % {"number": row.number}
    return pages.done(request, text, to=reverse("loadtests:run", args=[row.number]), stay=False)


@action(Action.OPERATE)
def start(request: HttpRequest, name: str) -> HttpResponse:
    """Run a load test."""
    allow = request.POST.get("allow") == "on"
    return _queued(
        request, services.start_run(person(request), selectors.load_test(name), allow_production=allow)
    )


@action(Action.CONFIGURE)
def delete_test(request: HttpRequest, name: str) -> HttpResponse:
    """Delete a load test; its runs stay."""
    services.delete_load_test(person(request), selectors.load_test(name))
    return pages.done(
        request, _("%(name)s is deleted.") % {"name": name}, to=reverse("loadtests:tests"), stay=False
    )


@action(Action.OPERATE)
def stop(request: HttpRequest, number: int) -> HttpResponse:
    """Stop a run."""
    row = services.stop_run(person(request), selectors.run(number))
    text = (
        _("Run #%(number)s is stopped.") if row.state == CANCELLED else _("Run #%(number)s is being stopped.")
    )
    return pages.done(request, text % {"number": number}, to=reverse("loadtests:run", args=[number]))


@action(Action.OPERATE)
def repeat(request: HttpRequest, number: int) -> HttpResponse:
    """Run the same scenario again; `generator` names the other one."""
    row, generator = selectors.run(number), request.POST.get("generator", "")
    return _queued(request, services.repeat_run(person(request), row, generator=generator))


@action(Action.OPERATE)
def delete_run(request: HttpRequest, number: int) -> HttpResponse:
    """Delete a run with its records."""
    services.delete_run(person(request), selectors.run(number))
    text = _("Run #%(number)s is deleted.") % {"number": number}
    return pages.done(request, text, to=reverse("loadtests:tests"), stay=False)


@action(Action.OPERATE)
def cancel_study(request: HttpRequest, number: int) -> HttpResponse:
    """Cancel a study."""
    services.cancel_study(person(request), selectors.study(number))
    text = _("Study #%(number)s is being cancelled.") % {"number": number}
    return pages.done(request, text, to=reverse("loadtests:study", args=[number]))


@action(Action.OPERATE)
def delete_study(request: HttpRequest, number: int) -> HttpResponse:
    """Delete a study with its runs."""
    services.delete_study(person(request), selectors.study(number))
    text = _("Study #%(number)s is deleted.") % {"number": number}
    return pages.done(request, text, to=reverse("loadtests:tests"), stay=False)


@action(Action.ADMINISTER)
def production(request: HttpRequest, name: str) -> HttpResponse:
    """Mark a deployment as production, or take the mark away."""
    marked = request.POST.get("production") == "on"
    services.set_production(person(request), serving.deployment(name), marked)
    text = (
        _("%(name)s is marked as production.")
        if marked
        else _("%(name)s is not marked as production any more.")
    )
    return pages.done(request, text % {"name": name}, to=reverse("loadtests:tests"))
