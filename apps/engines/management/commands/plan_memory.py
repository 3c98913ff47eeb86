"""`manage.py plan_memory PATH --gpu-memory 80GiB --tp 1 ...`: whether a checkpoint fits a GPU, and why."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from django.core.management.base import BaseCommand, CommandParser
from django.utils.translation import gettext as _

from apps.core.exceptions import Finding, InvalidInput
from apps.engines.domain.memory import as_dict, plan, shape_of
from apps.engines.domain.memory.answers import concurrency_table, fewest_gpus, largest_batch
from apps.engines.domain.memory.inputs import parse_input, request_of
from apps.engines.domain.memory.plan import Plan
from apps.engines.domain.memory.units import shown
from apps.registry.domain.checkpoint_reader import read_checkpoint

MISSING = "facts_incomplete"
MARKS = {"error": "error  ", "warning": "warning", "info": "info   "}
# Option -> what argparse reads it as; the defaults are those of PlanInput.
NUMBERS = {
    "tp": _("GPUs over which each layer is split"),
    "pp": _("GPUs over which the layers are spread"),
    "ep": _("ranks over which experts are spread, a divisor of tp"),
    "max-batch-size": _("sequences at once"),
    "max-seq-len": _("tokens of prompt and answer together"),
    "max-num-tokens": _("tokens of one step"),
    "beam-width": _("beams of a sequence"),
    "tokens-per-block": _("tokens of a block of the cache"),
    "kv-max-tokens": _("most tokens of the cache, beside the fraction"),
    "group-size": _("weights that share a scale"),
    "cuda-graphs": _("captured CUDA graphs"),
    "draft-tokens": _("tokens that are proposed in each step"),
    "lora-rank": _("rank of LoRA adapters"),
}
TEXTS = {
    "gpu-memory": _("memory of one GPU, such as 80GiB"),
    "gpu": _("a GPU of the table, such as h100-sxm, in place of its memory"),
    "weights": _("format of the linear layers: fp16, fp8, int4_awq, q4_0...; auto: as they are stored"),
    "kv": _("format of the KV cache: fp16, fp8, int8..."),
    "reserved": _("memory of the GPU that other programs hold"),
    "draft": _("a draft model beside it: a config.json, a folder or a .gguf file"),
}
FLAGS = {
    "chunked-context": _("long prompts are worked off in steps"),
    "gather-context-logits": _("the engine returns the logits of prompts"),
    "parallel-embedding": _("the embedding is divided over tp"),
}


class Command(BaseCommand):
    """Exits 0 with a plan, also where it does not fit; 1 where the input is refused. Needs no database."""

    help = _("Plan the memory of a checkpoint on one GPU of a group: weights, cache, activations, overhead.")
    requires_system_checks: list[str] = []

    def add_arguments(self, parser: CommandParser) -> None:
        """The checkpoint, the GPUs and the limits."""
        parser.add_argument("path", help=_("a config.json, a folder or a .gguf file"))
        memory = parser.add_mutually_exclusive_group(required=True)
        for name in ("gpu-memory", "gpu"):
            memory.add_argument(f"--{name}", help=TEXTS[name])
        for name in ("weights", "kv", "reserved", "draft"):
            parser.add_argument(f"--{name}", help=TEXTS[name])
        for name, text in NUMBERS.items():
            parser.add_argument(f"--{name}", type=int, metavar="N", help=text)
        parser.add_argument(
            "--kv-fraction", type=float, metavar="F", help=_("share of the free memory for the cache")
        )
        for name, text in FLAGS.items():
            parser.add_argument(f"--{name}", action="store_true", default=None, help=text)
        parser.add_argument(
            "--full-attention-cache",
            action="store_false",
            dest="windows",
            default=None,
            help=_("count the cache without the model's sliding windows (max_attention_window is not set)"),
        )
        parser.add_argument("--json", action="store_true", help=_("print JSON"))

    def handle(self, *args: Any, **options: Any) -> None:
        """Print the plan, or the findings that refuse it."""
        names = [*TEXTS, *NUMBERS, "kv-fraction", *FLAGS, "windows"]
        keys = [name.replace("-", "_") for name in names]
        values = {key: options[key] for key in keys if options.get(key) is not None}
        facts = read_checkpoint(Path(options["path"])).facts
        errors = list(facts.errors())
        try:
            shape, given = shape_of(facts), parse_input(values)
            draft = shape_of(read_checkpoint(Path(given.draft)).facts) if given.draft else None
            answer = plan(shape, request_of(given, shape, draft=draft))
        except InvalidInput as error:
            self._refuse(errors, error, as_json=options["json"])
            raise SystemExit(1) from error
        if options["json"]:
            self.stdout.write(json.dumps(self._as_dict(answer, errors), indent=2, ensure_ascii=False))
        else:
            self._print(answer, errors)
        if errors:
            raise SystemExit(1)

    def _as_dict(self, answer: Plan, errors: list[Finding]) -> dict[str, Any]:
        found = as_dict(answer)
        found["findings"] = [*(finding.as_dict() for finding in errors), *found["findings"]]
        spread = fewest_gpus(answer.shape, answer.request)
        return found | {
            "largest_batch": largest_batch(answer.shape, answer.request),
            "fewest_gpus": spread.gpus if spread else None,
            "concurrency": [
                {
                    "prompt": row.prompt,
                    "output": row.output,
                    "sequences": row.running if row.possible else None,
                }
                for row in concurrency_table(answer)
            ],
        }

    def _refuse(self, errors: list[Finding], error: InvalidInput, *, as_json: bool) -> None:
        own = error.findings or (Finding(error.code, "error", error.sentence, error.field, error.remedy),)
        # Where the checkpoint itself is refused, what it does not tell is no news.
        more = [finding for finding in own if finding not in errors and (not errors or finding.id != MISSING)]
        findings = [*errors, *more]
        if as_json:
            shown_findings = [finding.as_dict() for finding in findings]
            self.stdout.write(json.dumps({"findings": shown_findings}, indent=2, ensure_ascii=False))
            return
        for finding in findings:
            self.stderr.write(f"{finding.message} {finding.remedy}".strip())

    def _print(self, answer: Plan, errors: list[Finding]) -> None:
        rank, request = answer.rank, answer.request
        verdict = _("fits") if answer.fits else _("does not fit")
        self.stdout.write(
            _("%(verdict)s: needs %(required)s of the %(memory)s of each of %(gpus)d GPUs")
            % {
                "verdict": verdict,
                "required": shown(rank.required),
                "memory": shown(request.gpu_memory),
                "gpus": request.world_size,
            }
        )
        for term in rank.terms:
            span = (
                shown(term.likely)
                if term.exact
                else f"{shown(term.low)} .. {shown(term.likely)} .. {shown(term.high)}"
            )
            self.stdout.write(f"  {term.title:<34} {span:<40} {term.formula}")
        self.stdout.write(
            _("cache: %(tokens)s tokens, %(sequences)s sequences of %(length)s tokens")
            % {
                "tokens": f"{answer.kv_capacity_tokens:,}",
                "sequences": f"{answer.sequences_at_max_seq_len:,}",
                "length": f"{request.max_seq_len:,}",
            }
        )
        for finding in [*errors, *answer.findings]:
            self.stdout.write(
                f"{MARKS[finding.severity]} [{finding.id}] {finding.message} {finding.remedy}".rstrip()
            )
