"""Whether an engine may be deployed: its gate, its newest result, a waiver. Registered with apps.serving.gates."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from django.db.models import Q
from django.utils.translation import gettext as _

from apps.core.exceptions import Finding
from apps.engines.models import BuildProfile, Engine
from apps.loadtests import states
from apps.loadtests.domain.quality import Failing, judge
from apps.loadtests.models import QualityGate, QualityRun, QualityWaiver
from apps.serving.models import Deployment


@dataclass(frozen=True, slots=True)
class Verdict:
    """What stands for and against an engine. `run` null: nothing was measured; `gate` null: nothing is asked."""

    gate: QualityGate | None
    run: QualityRun | None
    failing: tuple[Failing, ...]
    waiver: QualityWaiver | None

    @property
    def passes(self) -> bool:
        """Whether every threshold is kept, or there is none."""
        return self.gate is None or not self.failing

    @property
    def blocks(self) -> bool:
        """Whether it may not be deployed."""
        return bool(self.failing) and self.gate is not None and self.gate.blocking and self.waiver is None

    @property
    def tone(self) -> str:
        """Colour family of its chip."""
        if self.gate is None:
            return "idle"
        return "ok" if self.passes else "bad" if self.blocks else "warn"

    @property
    def word(self) -> str:
        """The verdict in words."""
        if self.gate is None:
            return _("no gate")
        if self.passes:
            return _("passes")
        if self.waiver is not None:
            return _("waived")
        return _("blocked") if self.blocks else _("fails, not blocking")


def newest_run(engine: Engine) -> QualityRun | None:
    """The newest result of an engine. Without log-probabilities it counts where there is none with them."""
    found = QualityRun.objects.filter(engine=engine, state=states.SUCCEEDED)
    return found.filter(method=QualityRun.Method.LOGITS).first() or found.first()


def verdict_of(engine: Engine, profile: BuildProfile | None = None) -> Verdict:
    """An engine against the gates of the profiles that made it, and of `profile`; the first that it fails counts."""
    made_by = Q(build_profile__builds__engine=engine)
    asked = made_by | Q(build_profile=profile) if profile is not None else made_by
    gates = list(QualityGate.objects.filter(asked).select_related("build_profile").distinct())
    run = newest_run(engine)
    waiver = QualityWaiver.objects.select_related("waived_by").filter(engine=engine).first()
    judged = [(gate, tuple(judge(run.result if run else None, gate.thresholds))) for gate in gates]
    # One that blocks first, then one that only warns.
    judged.sort(key=lambda item: (not (item[1] and item[0].blocking), not item[1]))
    gate, failing = judged[0] if judged else (None, ())
    return Verdict(gate, run, failing, waiver)


def refusal(deployment: Deployment, engine: Engine) -> Finding | None:
    """Why an engine may not be deployed; None where it may. The contract is apps.serving.gates'."""
    found = verdict_of(engine, deployment.build_profile)
    if not found.blocks or found.gate is None:
        return None
    said = " ".join(each.sentence for each in found.failing)
    measured = found.run is not None
    return Finding(
        "quality_gate",
        "error",
        _("Quality gate %(gate)s does not let %(engine)s pass: %(said)s")
        % {"gate": found.gate.name, "engine": engine, "said": said},
        "build_profile",
        _("Choose a wider weight type, loosen the gate, or have an administrator waive it: page Quality.")
        if measured
        else _("Measure the engine first: page Quality, or manage.py quality start %(fingerprint)s.")
        % {"fingerprint": engine.fingerprint[:12]},
    )


def verdict_dict(found: Verdict) -> dict[str, Any]:
    """JSON form."""
    return {
        "gate": found.gate.name if found.gate else None,
        "run": found.run.number if found.run else None,
        "passes": found.passes,
        "blocks": found.blocks,
        "failing": [
            {
                "threshold": each.threshold,
                "bound": each.bound,
                "measured": each.measured,
                "worst": each.worst,
                "sentence": each.sentence,
            }
            for each in found.failing
        ],
        "waiver": {
            "why": found.waiver.why,
            "by": found.waiver.waived_by.get_username() if found.waiver.waived_by else None,
        }
        if found.waiver
        else None,
    }
