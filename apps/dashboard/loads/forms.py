"""Forms of load tests. They shape what a person types; services decide whether it is good."""

from __future__ import annotations

from typing import Any

from django import forms
from django.utils.translation import gettext_lazy as _

from apps.core.exceptions import InvalidInput
from apps.loadtests import generators, selectors
from apps.loadtests.domain.compare import DEFAULT_PRIMARY, METRICS
from apps.loadtests.models import LoadRun
from apps.serving.models import Deployment

_PLAIN = {"autocomplete": "off", "spellcheck": "false"}


def _number(label: Any, initial: int, help_text: Any = "", least: int = 0) -> forms.IntegerField:
    return forms.IntegerField(
        label=label,
        initial=initial,
        min_value=least,
        help_text=help_text,
        widget=forms.NumberInput(attrs=_PLAIN),
    )


def _bound(label: Any) -> forms.Field:
    return forms.FloatField(
        label=label,
        required=False,
        min_value=0.001,
        widget=forms.NumberInput(attrs={**_PLAIN, "step": "any"}),
    )


class LoadForm(forms.Form):
    """What is usual of a scenario; the rest stands in YAML, the API and the admin."""

    target = forms.ChoiceField(label=_("Deployment"), help_text=_("It must be serving."))
    via = forms.ChoiceField(
        label=_("Through"),
        choices=[("http", "Triton HTTP"), ("grpc", "Triton gRPC"), ("gateway", _("Gateway"))],
        initial="http",
        help_text=_("Straight to the servers, or as clients do, with keys, limits and routing."),
    )
    generator = forms.ChoiceField(
        label=_("Sent by"),
        required=False,
        help_text=_(
            "AIPerf, where a node has it, sends the same requests through the gateway, for a fixed time."
        ),
    )
    mode = forms.ChoiceField(
        label=_("Load"),
        choices=[
            ("closed", _("Clients: each asks again when it has its answer")),
            ("open", _("Arrivals: requests come whether or not earlier ones are answered")),
            ("trace", _("Trace: arrivals of a dataset, at their moments")),
        ],
        initial="closed",
        widget=forms.RadioSelect,
    )
    steps = forms.CharField(
        label=_("Clients, or requests/s"),
        initial="16",
        required=False,
        widget=forms.TextInput(attrs={**_PLAIN, "class": "input mono"}),
        help_text=_("Several, as 1, 2, 4, 8, are measured one after the other: a curve."),
    )
    arrivals = forms.ChoiceField(
        label=_("Arrivals"),
        choices=[("poisson", "Poisson"), ("constant", _("constant")), ("bursty", _("bursts of 4"))],
        initial="poisson",
    )
    input_mean = _number(_("Prompt (tokens)"), 32, least=1)
    output_least = _number(_("Answer, least (tokens)"), 8, least=1)
    output_most = _number(_("Answer, most (tokens)"), 128, least=1)
    shared_prefix = _number(_("Shared beginning (tokens)"), 0, _("Before every prompt; a cache can hold it."))
    turns = _number(_("Turns of a conversation"), 1, least=1)
    dataset = forms.ChoiceField(
        label=_("Dataset"),
        required=False,
        help_text=_("Lengths and texts from a file in the home's datasets/."),
    )
    warm_up = _number(_("Warm-up (s)"), 5)
    seconds = _number(_("Measured at least (s)"), 30, least=1)
    most = _number(
        _("Measured at most (s)"), 90, _("It ends earlier once throughput and latency are steady."), least=1
    )
    ttft_ms = _bound(_("TTFT below (ms)"))
    tpot_ms = _bound(_("TPOT below (ms)"))
    latency_ms = _bound(_("Latency below (ms)"))
    seed = forms.IntegerField(
        label=_("Seed"),
        required=False,
        min_value=0,
        max_value=2**31 - 1,
        widget=forms.NumberInput(attrs=_PLAIN),
        help_text=_("Empty: a new one for each run, so that no cache is met twice."),
    )
    name = forms.CharField(
        label=_("Keep as"),
        required=False,
        max_length=63,
        widget=forms.TextInput(attrs={**_PLAIN, "class": "input mono"}),
        help_text=_("A name to run it again by; empty: run it once."),
    )
    allow = forms.BooleanField(label=_("Lift the limits that spare production"), required=False)

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        names = Deployment.objects.order_by("name").values_list("name", flat=True)
        self.fields["target"].choices = [(name, name) for name in names]  # type: ignore[attr-defined]
        choices = LoadRun.Generator.choices if generators.installed() else LoadRun.Generator.choices[:1]
        self.fields["generator"].choices = choices  # type: ignore[attr-defined]
        datasets = [("", _("none: words drawn at random")), *((name, name) for name in selectors.datasets())]
        self.fields["dataset"].choices = datasets  # type: ignore[attr-defined]

    def scenario(self) -> dict[str, Any]:
        """The scenario as services take it. Raises InvalidInput for steps that are no numbers."""
        data = self.cleaned_data
        dataset = bool(data["dataset"])
        lengths: dict[str, Any] = {"distribution": "fixed", "mean": float(data["input_mean"])}
        output: dict[str, Any] = {
            "distribution": "uniform",
            "least": data["output_least"],
            "most": max(data["output_most"], data["output_least"]),
        }
        if dataset:
            lengths, output = (
                {"distribution": "dataset"},
                {"distribution": "dataset", "mean": float(data["output_most"])},
            )
        seconds = float(data["seconds"])
        fixed = {"until_steady": False} if data["generator"] == LoadRun.Generator.AIPERF else {}
        return {
            "target": data["target"],
            "via": data["via"],
            "load": {"mode": data["mode"], "arrivals": data["arrivals"], **self._steps()},
            "prompts": {
                "input": lengths,
                "output": output,
                "shared_prefix": data["shared_prefix"],
                "turns": data["turns"],
                "dataset": data["dataset"],
            },
            "timing": {
                "warm_up_seconds": float(data["warm_up"]),
                "seconds": seconds,
                "most_seconds": max(seconds, float(data["most"])),
                **fixed,
            },
            "slo": {key: data[key] for key in ("ttft_ms", "tpot_ms", "latency_ms")},
            "seed": data["seed"],
        }

    def _steps(self) -> dict[str, Any]:
        mode = self.cleaned_data["mode"]
        if mode == "trace":
            return {}
        words = self.cleaned_data["steps"].replace(",", " ").split()
        try:
            values = [float(word) for word in words]
        except ValueError as error:
            raise InvalidInput(
                "steps",
                str(_("These are no numbers.")),
                field="steps",
                remedy=str(_("Write them as 1, 2, 4, 8.")),
            ) from error
        if mode == "open":
            return {"rate": values}
        return {"concurrency": [int(value) for value in values]}


# Fields of a scenario -> those of the form.
FIELDS = {
    "load.concurrency": "steps",
    "load.rate": "steps",
    "load.mode": "mode",
    "load.arrivals": "arrivals",
    "prompts.turns": "turns",
    "timing.warm_up_seconds": "warm_up",
    "prompts.dataset": "dataset",
    "timing.seconds": "seconds",
    "timing.most_seconds": "most",
    "timing": "most",
}


class StudyForm(forms.Form):
    """What to compare."""

    kind = forms.ChoiceField(
        label=_("Compare"),
        choices=[
            ("batching", _("None, static, dynamic and in-flight batching on one engine")),
            ("deployments", _("Deployments that serve")),
        ],
        initial="batching",
        widget=forms.RadioSelect,
    )
    deployment = forms.ChoiceField(
        label=_("Engine of"),
        required=False,
        help_text=_("Its engine is served once for each strategy, beside it; these servers go at the end."),
    )
    deployments = forms.MultipleChoiceField(
        label=_("Deployments"), required=False, widget=forms.CheckboxSelectMultiple
    )
    full = forms.BooleanField(label=_("Also delays of 0, 1, 5, 10 ms and smaller batches"), required=False)
    repeats = _number(
        _("Repeats"), 3, _("Each configuration runs so often, in turns with the others."), least=1
    )
    primary = forms.ChoiceField(
        label=_("Decided by"),
        choices=[(name, f"{metric.title} ({metric.unit})") for name, metric in METRICS.items()],
        initial=DEFAULT_PRIMARY,
        help_text=_("The one metric of the verdict; all others are corrected for being many."),
    )
    clients = _number(_("Clients"), 16, _("Comparing deployments: how many ask at once."), least=1)
    seconds = _number(_("Measured for (s)"), 30, _("Comparing deployments: each run."), least=1)
    allow = forms.BooleanField(label=_("Lift the limits that spare production"), required=False)

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        names = [(name, name) for name in Deployment.objects.order_by("name").values_list("name", flat=True)]
        self.fields["deployment"].choices = names  # type: ignore[attr-defined]
        self.fields["deployments"].choices = names  # type: ignore[attr-defined]

    def scenario(self) -> dict[str, Any]:
        """The load that deployments are compared under; a fixed time, so that turns are alike."""
        data = self.cleaned_data
        seconds = float(data["seconds"])
        return {
            "target": (data["deployments"] or ["-"])[0],
            "load": {"mode": "closed", "concurrency": [data["clients"]]},
            "timing": {"seconds": seconds, "most_seconds": 2 * seconds, "until_steady": False},
        }
