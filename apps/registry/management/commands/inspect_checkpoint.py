"""`manage.py inspect_checkpoint PATH`: what a checkpoint is, by its configuration and headers. Needs no database."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from django.core.management.base import BaseCommand, CommandParser
from django.utils.translation import gettext as _

from apps.registry.answers import REFUSED, facts_answer
from apps.registry.domain.checkpoint_reader import read_checkpoint

SHOWN = (
    "family",
    "architecture",
    "params",
    "active_params",
    "num_layers",
    "hidden_size",
    "num_attention_heads",
    "num_kv_heads",
    "head_dim",
    "intermediate_size",
    "vocab_size",
    "max_position_embeddings",
    "attention_window",
    "rope",
    "dtype",
    "kv_bytes_per_token",
    "valid_tp",
    "valid_pp",
)


class Command(BaseCommand):
    """Reads headers only, never weights; nothing of the checkpoint is run."""

    help = "Say what a checkpoint is: a config.json, a folder, a .gguf. Exit 0 when it is good, 1 when it is refused."
    requires_system_checks: list[str] = []

    def add_arguments(self, parser: CommandParser) -> None:
        """Options."""
        parser.add_argument("path", help="a config.json, a folder in Hugging Face form, or a .gguf file")
        parser.add_argument("--json", action="store_true", help="print one JSON object and nothing else")
        parser.add_argument(
            "--all-tp", action="store_true", help="valid_tp lists every size up to 64, not only powers of two"
        )

    def handle(self, *args: Any, **options: Any) -> None:
        """Print the facts, or why they cannot be trusted."""
        facts = read_checkpoint(Path(options["path"])).facts
        answer = facts_answer(facts, all_tp=options["all_tp"])
        if options["json"]:
            self.stdout.write(json.dumps(answer))
        else:
            self._print(answer)
        if facts.errors():
            sys.exit(REFUSED)

    def _print(self, answer: dict[str, Any]) -> None:
        width = max(map(len, SHOWN))
        for name in SHOWN:
            value = answer[name]
            absent = _("none") if name == "attention_window" else _("not known")
            self.stdout.write(f"{name:<{width}}  {absent if value is None else json.dumps(value)}")
        stored = answer["quantization"]
        if stored:
            self.stdout.write(f"{'quantization':<{width}}  {json.dumps(stored)}")
        for finding in answer["findings"]:
            self.stdout.write(f"{finding['severity']}: {finding['message']} {finding['remedy']}".rstrip())
