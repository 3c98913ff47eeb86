"""The facts panel at both widths, light and dark: long reasons wrap, figures can be copied by keyboard."""

from __future__ import annotations

import json
from pathlib import Path

from playwright.sync_api import Page, expect

from apps.registry.domain.model_config import facts_of
from apps.registry.models import Checkpoint
from tests.browser import checks

KNOWN = json.loads((Path(__file__).parents[1] / "data/hf_configs/architectures.json").read_text())


def test_the_panel(page: Page) -> None:
    config = {
        **KNOWN["qwen2-57b-a14b"]["config"],
        "quantization_config": {"quant_method": "gptq", "bits": 4, "group_size": 128, "desc_act": True},
    }
    facts = facts_of(config).model_dump(mode="json")
    source = {
        "huggingface": {"repo": "a-publisher-with-a-long-name/a-model-with-a-longer-name", "revision": "main"}
    }
    Checkpoint.objects.create(
        name="experts",
        source=source,
        path="/srv/m",
        state="ready",
        format="hf",
        size_bytes=31_000_000_000,
        facts=facts,
    )
    page.goto("/checkpoints/experts/")
    expect(page.get_by_role("heading", name="Facts", exact=True)).to_be_visible()
    expect(page.get_by_text("num_attention_heads 28 % tp 8 != 0")).to_be_visible()
    wrong = {}
    for theme in ("light", "dark"):
        page.emulate_media(color_scheme=theme)  # type: ignore[arg-type]
        for width, height in ((390, 844), (1440, 900)):
            page.set_viewport_size({"width": width, "height": height})
            wrong[f"{theme} {width}"] = checks.problems(page)
    assert not any(wrong.values()), wrong
    button = page.get_by_role("button", name="Copy Parameters")
    button.focus()
    expect(button).to_be_focused()
    expect(button).to_have_attribute("data-copy", "57408658944")
