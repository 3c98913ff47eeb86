"""The form of a TensorRT-LLM build profile, with a field for each flag, in a real browser."""

from __future__ import annotations

from django.urls import reverse
from playwright.sync_api import Page, expect

from apps.engines.models import BuildProfile
from apps.registry.domain.model_config import facts_of
from apps.registry.models import Checkpoint
from tests.browser import checks
from tests.browser.world import World
from tests.engines.trtllm.test_compose import LLAMA


def test_a_form_of_flags_is_searched_greyed_and_judged(page: Page, world: World) -> None:
    facts = facts_of(LLAMA).model_dump(mode="json")
    row = Checkpoint.objects.create(
        name="llama", path="/models/llama", format="hf", state="ready", source={}, facts=facts
    )
    page.goto(reverse("admin:engines_buildprofile_add"))
    expect(page.locator("#id_recipe")).to_be_hidden()
    page.locator("#id_builder").select_option("trtllm")
    expect(page.locator("#id_quantization")).to_be_hidden()
    expect(page.locator("#id_build__max_batch_size")).to_be_hidden()
    search = page.locator("#inf-field-search")
    search.fill("use_paged_context_fmha")
    expect(page.locator("#inf-field-count")).to_have_text("Fields 1")
    expect(page.locator("#id_build__use_paged_context_fmha")).to_be_visible()
    search.fill("")
    page.locator("#id_tensorrt_llm").fill("0.10.0")
    search.fill("max_seq_len")
    expect(page.locator("#id_build__max_seq_len")).to_be_disabled()
    expect(page.locator(".field-build__max_seq_len .inf-flag-away")).to_contain_text("it came with 0.11")
    search.fill("")
    page.locator("#id_tensorrt_llm").fill("1.2.1")
    page.locator("#id_checkpoint").select_option(str(row.pk))
    page.locator("#id_gpu").select_option("h100-sxm")
    search.fill("remove_input_padding")
    page.locator("#id_build__remove_input_padding").select_option("disable")
    beside = page.locator(".field-build__remove_input_padding .inf-flag-say")
    expect(beside).to_contain_text("Without packed inputs there is no in-flight batching")
    expect(page.locator("[data-verdict]")).to_contain_text("Errors 1")
    page.locator("#id_build__remove_input_padding").select_option("")
    expect(page.locator(".inf-preview-body")).to_contain_text("trtllm-build")
    expect(beside).to_be_empty()
    # The rest of the page is the admin of unfold, with its own tests and limits.
    assert [found for found in checks.problems(page) if "inf-" in found] == []
    assert not BuildProfile.objects.filter(builder="trtllm").exists()
