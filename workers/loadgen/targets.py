"""Where a run's requests go and how its prompts are framed; reads the database for the worker, not for the child."""

from __future__ import annotations

from urllib.parse import urlsplit

from django.conf import settings
from django.contrib.auth.models import User
from django.utils.translation import gettext as _

from apps.core.exceptions import NotPossibleNow
from apps.loadtests.domain.scenario import Scenario
from apps.loadtests.domain.workload import Frame
from apps.serving import selectors as serving
from apps.serving.models import Deployment
from apps.streaming import prompts
from apps.streaming.domain.chat_template import TemplateFailure
from workers.loadgen.plan import Address, addresses_of

# No template and no list of words contains them.
ONE, TWO, THREE = "inflightmarkone", "inflightmarktwo", "inflightmarkthree"


def addresses(scenario: Scenario, deployment: Deployment | None) -> tuple[Address, ...]:
    """Every server of the target, or the gateway. Raises NotPossibleNow where none serves."""
    if scenario.via == "gateway":
        url = urlsplit(settings.INFLIGHT_GATEWAY_URL)
        return (Address(url.hostname or "127.0.0.1", url.port or 80, scenario.target),)
    found = serving.endpoints(deployment) if deployment is not None else []
    if not found:
        raise NotPossibleNow(
            "nothing_serving",
            _("No instance of %(name)s is serving (any more).") % {"name": scenario.target},
            field="target",
            remedy=_("Deploy it, then start the run again."),
        )
    return addresses_of([(each.http_url, each.grpc_url, each.model) for each in found])


def frame(scenario: Scenario, deployment: Deployment | None) -> Frame:
    """The chat template's text around questions and answers; empty where the target renders, or has no template."""
    if scenario.via == "gateway" or deployment is None:
        return Frame()
    checkpoint = prompts.serving_checkpoint(deployment)
    try:
        text = prompts.render(checkpoint, prompts.conversation(THREE, earlier=[(ONE, TWO)])).text
    except TemplateFailure:
        return Frame()
    return cut(text)


def cut(text: str) -> Frame:
    """The pieces of a rendered conversation of one answered and one open question. Empty where a mark is missing."""
    if any(text.count(mark) != 1 for mark in (ONE, TWO, THREE)):
        return Frame()
    head, rest = text.split(ONE)
    answer, rest = rest.split(TWO)
    question, tail = rest.split(THREE)
    # After the last question the template also begins the answer; where it adds more there, a single turn shows it.
    return Frame(head, tail if tail else answer, question)


def any_administrator() -> User:
    """The account that answers for the gateway's key of a run that the command line started. Raises
    NotPossibleNow."""
    found = User.objects.filter(is_superuser=True, is_active=True).order_by("pk").first()
    if found is None:
        raise NotPossibleNow(
            "no_administrator",
            _("There is no account that could own the gateway's key of this run."),
            remedy=_("Start the run with --user."),
        )
    return found
