"""The evaluation of all rules, every few seconds in the telemetry process: verdicts become moves of alerts.

What must survive a restart is on the alert's row (since when it holds, when it was last seen to). What is only in
memory (since when it is over) begins anew after one, so that nothing ends or starts because telemetry did.
"""

from __future__ import annotations

import contextlib
import hashlib
import logging
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from datetime import UTC, datetime

from django.db import IntegrityError, transaction
from django.utils.translation import gettext as _

from apps.core.exceptions import InflightError
from apps.core.transitions import transition
from apps.realtime.redis_clients import REDIS_ERRORS, sync_client
from apps.telemetry import store
from apps.telemetry.alerts import budget, states, wording
from apps.telemetry.alerts.happenings import Moments
from apps.telemetry.alerts.models import Alert, AlertRule
from apps.telemetry.alerts.watching import Memory, Watched, everything
from apps.telemetry.domain.alerting import burn, conditions, judge, lifecycle
from apps.telemetry.domain.alerting.conditions import (
    Absence,
    AnyCondition,
    BurnRate,
    Change,
    Events,
    InState,
    Threshold,
)
from apps.telemetry.domain.alerting.judge import Verdict, unknown
from apps.telemetry.domain.alerting.lifecycle import LONGEST_BREAK, Standing, Timing, Track

log = logging.getLogger(__name__)

ACTOR = "telemetry"
# Seconds between two looks at the rules.
PERIOD = 5.0
# How often the row of an alert that goes on is refreshed.
REFRESH_SECONDS = 15.0
# Error budgets look back for hours; they need not be asked every few seconds.
BUDGET_SECONDS = 30.0


@dataclass(frozen=True, slots=True)
class Rule:
    """A rule with its condition parsed."""

    row: AlertRule
    condition: AnyCondition

    @property
    def timing(self) -> Timing:
        """Its durations."""
        return Timing(self.row.for_seconds, self.row.resolve_seconds, self.row.null_seconds)


@dataclass(slots=True)
class Listening:
    """Since when samples can be trusted to be missing only where a server does not give them."""

    ticked: float | None = None
    since: float = 0.0
    beat_at: float | None = None
    beats: bool = False

    def tick(self, now: float, beats: bool) -> None:
        """Note a look at `now`; `beats`: telemetry writes samples."""
        if self.ticked is None or now - self.ticked > LONGEST_BREAK or (beats and not self.beats):
            self.since = now
        if beats:
            self.beat_at = now
        self.ticked, self.beats = now, beats


@dataclass(slots=True)
class Evaluator:
    """Evaluates rules and moves alerts. One at a time: the telemetry process has it, the sweep stands in."""

    memory: Memory = field(default_factory=Memory)
    clock: Callable[[], float] = time.time
    alive: Callable[[], bool | None] = store.is_alive
    actor: str = ACTOR
    # The stand-in looks only at whether telemetry says anything.
    only_silence: bool = False
    _listening: Listening = field(default_factory=Listening)
    _tracks: dict[str, Track] = field(default_factory=dict)
    _refreshed: dict[str, float] = field(default_factory=dict)
    _budgets: dict[str, tuple[float, Verdict]] = field(default_factory=dict)

    def tick(self) -> None:
        """Look once at every rule."""
        now = self.clock()
        rules = list(_rules(self.only_silence))
        self._listening.tick(now, bool(self.alive()))
        objects = [each for each in everything() if not self.only_silence or each.kind == "fleet"]
        self._remember(rules, objects, now)
        moments = Moments(now, (rule.condition for rule in rules))
        rows = {
            row.fingerprint: row for row in Alert.objects.filter(state__in=states.OPEN).select_related("rule")
        }
        known: set[str] = set()
        for rule in rules:
            for watched in objects:
                if watched.kind == rule.row.target and watched.fits(rule.row.selector):
                    fingerprint = fingerprint_of(rule.row, watched)
                    known.add(fingerprint)
                    verdict = self._verdict(rule, watched, moments, now)
                    self._advance(rule, watched, rows.get(fingerprint), fingerprint, verdict, now)
        if not self.only_silence:
            self._end_gone(rows, known)

    # ------------------------------------------------------------------ evidence

    def _remember(self, rules: list[Rule], objects: list[Watched], now: float) -> None:
        sampled = [rule for rule in rules if isinstance(rule.condition, Threshold | Change | Absence)]
        kinds = {rule.row.target for rule in sampled}
        keys = {
            str(key)
            for rule in sampled
            for key in (getattr(rule.condition, "key", None), getattr(rule.condition, "per", None))
            if key
        }
        seconds = max((judge.needed_seconds(rule.condition) for rule in sampled), default=0.0)
        streams = [each.stream for each in objects if each.stream and each.kind in kinds]
        self.memory.look(streams, keys, seconds, now)

    def _verdict(self, rule: Rule, watched: Watched, moments: Moments, now: float) -> Verdict:
        condition = rule.condition
        if isinstance(condition, InState):
            return judge.in_state(condition, watched.state)
        if isinstance(condition, Events):
            return judge.events(condition, moments.of(condition, watched), now)
        if isinstance(condition, BurnRate):
            return self._budget(rule, condition, watched, now)
        if isinstance(condition, Absence):
            return self._absence(condition, watched, now)
        if not watched.stream:
            return unknown("null")
        samples = self.memory.of(watched.stream)
        if isinstance(condition, Threshold):
            return judge.threshold(condition, samples, now)
        return judge.change(condition, samples, now)

    def _absence(self, condition: Absence, watched: Watched, now: float) -> Verdict:
        listening = self._listening
        if watched.kind == "fleet" and condition.key is None:
            # Telemetry as a whole: its own sign of life, which it also gives when nothing is served.
            heard = [] if listening.beat_at is None else [{"at": listening.beat_at}]
            return judge.absence(condition, heard, now, listening.since)
        if not watched.talks:
            return unknown("null")
        if not listening.beats:
            # Nobody is heard: doubt ourselves first.
            return unknown("gap")
        since = max(listening.since, watched.talks_since)
        return judge.absence(condition, self.memory.of(watched.stream), now, since)

    def _budget(self, rule: Rule, condition: BurnRate, watched: Watched, now: float) -> Verdict:
        key = fingerprint_of(rule.row, watched)
        asked, verdict = self._budgets.get(key, (0.0, unknown("null")))
        if now - asked >= BUDGET_SECONDS:
            verdict = burn.judge(condition, budget.counter(condition, watched, now))
            self._budgets[key] = (now, verdict)
        return verdict

    # ------------------------------------------------------------------ moves

    def _advance(
        self,
        rule: Rule,
        watched: Watched,
        row: Alert | None,
        fingerprint: str,
        verdict: Verdict,
        now: float,
    ) -> None:
        standing: Standing = "rest" if row is None else "pending" if row.state == states.PENDING else "firing"
        track = self._tracks.get(fingerprint) or _track_of(row)
        move, track = lifecycle.advance(standing, track, verdict, now, rule.timing)
        if row is None and move == "" and track.true_since is None:
            self._tracks.pop(fingerprint, None)
        else:
            self._tracks[fingerprint] = track
        if move in {"pend", "fire"}:
            self._raise(rule, watched, row, fingerprint, verdict, track, fire=move == "fire", now=now)
        elif row is not None and move == "drop":
            Alert.objects.filter(pk=row.pk, state=states.PENDING).delete()
        elif row is not None and move in {"resolve", "resolve_null"}:
            self._resolve(row, move, verdict, now)
        elif row is not None and verdict.active:
            self._refresh(row, rule, verdict, now)

    def _raise(
        self,
        rule: Rule,
        watched: Watched,
        row: Alert | None,
        fingerprint: str,
        verdict: Verdict,
        track: Track,
        *,
        fire: bool,
        now: float,
    ) -> None:
        said = wording.sentence(rule.condition, verdict)
        try:
            with transaction.atomic():
                row = row or _new_alert(rule.row, watched, fingerprint, verdict, track, said, now)
                if fire:
                    transition(
                        row,
                        states.FIRING,
                        actor=self.actor,
                        reason=rule.row.name[:60],
                        sentence=said,
                        remedy=rule.row.remedy,
                        fired_at=_moment(now),
                        value=verdict.value,
                        threshold=verdict.limit,
                        facts=dict(verdict.facts),
                        last_true=_moment(now),
                    )
        except IntegrityError:
            # Another evaluator opened it first.
            log.info("The alert %s of %s is open already.", rule.row.name, watched.name)
        self._refreshed[fingerprint] = now

    def _resolve(self, row: Alert, move: str, verdict: Verdict, now: float) -> None:
        reason, sentence = "over", row.sentence
        if move == "resolve_null":
            reason, sentence = (
                "no_value",
                _("There was no value for a while: nothing happens any more that could be wrong."),
            )
        transition(
            row,
            states.RESOLVED,
            actor=self.actor,
            reason=reason,
            sentence=sentence,
            remedy="",
            resolved_at=_moment(now),
        )
        self._forget(row.fingerprint)

    def _refresh(self, row: Alert, rule: Rule, verdict: Verdict, now: float) -> None:
        """Keep the row's figures fresh, without a new version each time: nobody needs to look for this."""
        if now - self._refreshed.get(row.fingerprint, 0.0) < REFRESH_SECONDS:
            return
        self._refreshed[row.fingerprint] = now
        track = self._tracks.get(row.fingerprint, Track())
        Alert.objects.filter(pk=row.pk, state__in=states.OPEN).update(
            value=verdict.value,
            threshold=verdict.limit,
            facts=dict(verdict.facts),
            sentence=wording.sentence(rule.condition, verdict),
            last_true=_moment(now),
            true_since=_moment(track.true_since or now),
        )

    def _end_gone(self, rows: dict[str, Alert], known: set[str]) -> None:
        """End alerts whose object or rule is not there any more."""
        for fingerprint, row in rows.items():
            if fingerprint in known:
                continue
            if row.state == states.PENDING:
                row.delete()
            else:
                transition(
                    row,
                    states.RESOLVED,
                    actor=self.actor,
                    reason="gone",
                    sentence=_("What it was about is not there, or not watched, any more."),
                    remedy="",
                    resolved_at=_moment(self.clock()),
                )
            self._forget(fingerprint)

    def _forget(self, fingerprint: str) -> None:
        for kept in (self._tracks, self._refreshed, self._budgets):
            kept.pop(fingerprint, None)


def fingerprint_of(rule: AlertRule, watched: Watched) -> str:
    """Names a rule at an object."""
    return hashlib.sha256(f"{rule.name}\0{watched.kind}\0{watched.id}".encode()).hexdigest()[:32]


def _rules(only_silence: bool) -> Iterable[Rule]:
    for row in AlertRule.objects.filter(enabled=True):
        try:
            condition = conditions.parse(row.condition, row.target)
        except InflightError as error:
            log.warning("The alert rule %s cannot be read and is passed over: %s", row.name, error)
            continue
        is_silence = row.target == "fleet" and isinstance(condition, Absence) and condition.key is None
        if is_silence or not only_silence:
            yield Rule(row, condition)


def _new_alert(
    rule: AlertRule,
    watched: Watched,
    fingerprint: str,
    verdict: Verdict,
    track: Track,
    sentence: str,
    now: float,
) -> Alert:
    return Alert.objects.create(
        state=states.PENDING,
        rule=rule,
        rule_name=rule.name,
        summary=rule.summary,
        fingerprint=fingerprint,
        severity=rule.severity,
        target=watched.kind,
        target_id=watched.id,
        target_name=watched.name,
        deployment=watched.deployment,
        value=verdict.value,
        threshold=verdict.limit,
        facts=dict(verdict.facts),
        sentence=sentence,
        remedy=rule.remedy,
        true_since=_moment(track.true_since or now),
        last_true=_moment(now),
    )


def _track_of(row: Alert | None) -> Track:
    """Where a row's clock stands after a restart."""
    if row is None:
        return Track()
    last = row.last_true.timestamp()
    return Track(true_since=row.true_since.timestamp(), last_true=last, seen=last)


def _moment(at: float) -> datetime:
    return datetime.fromtimestamp(at, tz=UTC)


evaluator = Evaluator()

BEAT = "alerts:beat"
# Longer than a few looks that were late.
BEAT_SECONDS = 30


def tick() -> None:
    """One look of the telemetry process, and a sign that it looks."""
    evaluator.tick()
    with contextlib.suppress(*REDIS_ERRORS):
        sync_client().set(BEAT, "1", ex=BEAT_SECONDS)


def runs_elsewhere() -> bool:
    """Whether a telemetry process evaluates alerts; also True where Redis cannot be asked."""
    try:
        return bool(sync_client().exists(BEAT))
    except REDIS_ERRORS:
        return True
