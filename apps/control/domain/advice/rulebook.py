"""Asks every rule about a deployment; without enough figures no rule is asked."""

from __future__ import annotations

from dataclasses import dataclass

from apps.control.domain.advice import batching, engine
from apps.control.domain.advice.figures import Figures
from apps.control.domain.advice.message import message as _
from apps.control.domain.advice.outcome import Advice, CannotSay, Fine, Outcome, Rule, Subject

RULES: tuple[Rule, ...] = (*batching.RULES, *engine.RULES)
# Seconds of samples, and the share of the range that they must cover, below which nothing is said.
LEAST_SECONDS = 60.0
LEAST_COVERAGE = 0.5


@dataclass(frozen=True, slots=True)
class Opinion:
    """What all rules said of one deployment over one range of time (epoch seconds)."""

    since: float
    until: float
    coverage: float
    outcomes: tuple[Outcome, ...]

    @property
    def advice(self) -> tuple[Advice, ...]:
        """What to change, gravest first."""
        found = [each for each in self.outcomes if isinstance(each, Advice)]
        return tuple(sorted(found, key=lambda each: each.weight != "warning"))

    @property
    def fine(self) -> tuple[Fine, ...]:
        """What is as it should be."""
        return tuple(each for each in self.outcomes if isinstance(each, Fine))

    @property
    def unknown(self) -> tuple[CannotSay, ...]:
        """What cannot be said for want of data."""
        return tuple(each for each in self.outcomes if isinstance(each, CannotSay) and each.applies)

    @property
    def not_here(self) -> tuple[CannotSay, ...]:
        """Questions that do not arise."""
        return tuple(each for each in self.outcomes if isinstance(each, CannotSay) and not each.applies)


def opinion(subject: Subject, figures: Figures) -> Opinion:
    """Ask every rule."""
    coverage = figures.coverage()
    return Opinion(
        figures.since,
        figures.until,
        coverage,
        tuple(_asked(rule, subject, figures, coverage) for rule in RULES),
    )


def _asked(rule: Rule, subject: Subject, figures: Figures, coverage: float) -> Outcome:
    if figures.seconds < LEAST_SECONDS:
        return rule.cannot_say(_("It has run like this for less than a minute."))
    if coverage < LEAST_COVERAGE:
        return rule.cannot_say(
            _("Samples cover %(coverage)s of this range only.", coverage=f"{coverage:.0%}")
        )
    missing = [key for key in rule.needs if not figures.values(key)]
    if missing:
        return rule.cannot_say(_("The engine does not tell %(missing)s.", missing=", ".join(missing)))
    return rule.ask(rule, subject, figures)
