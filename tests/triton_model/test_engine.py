"""Continuous batching over a fake runtime: who runs when, what is cancelled, what the cache holds."""

from __future__ import annotations

import pytest
from llamacpp_errors import Cancelled, EngineFailure, InvalidRequest, QueueFull, ShuttingDown
from llamacpp_request import Sampling

from tests.triton_model.fakes import FakeRuntime, make_bench, wait_for


def test_an_answer_comes_in_deltas_and_ends_with_its_totals() -> None:
    bench = make_bench(FakeRuntime({"Hi": b"Hello"}))
    kept, _ = bench.ask("Hi", max_tokens=20)
    bench.until_over(kept)
    assert [delta.text for delta in kept.deltas] == ["H", "e", "l", "l", "o", ""]
    assert kept.end is not None
    assert (kept.end.reason, kept.end.prompt_tokens, kept.end.completion_tokens) == ("stop", 2, 6)
    assert kept.tokens == kept.end.completion_tokens


def test_length_ends_an_answer_with_its_last_token_shown() -> None:
    bench = make_bench(FakeRuntime({"Hi": b"Hello"}))
    kept, _ = bench.ask("Hi", max_tokens=3)
    bench.until_over(kept)
    assert kept.text == "Hel"
    assert kept.end is not None
    assert (kept.end.reason, kept.end.completion_tokens) == ("length", 3)
    # The last token is never decoded: nobody needs what follows it.
    assert len(bench.runtime.steps) == 3


def test_inflight_requests_share_steps_and_join_while_others_run() -> None:
    bench = make_bench()
    first, _ = bench.ask("one", max_tokens=10)
    bench.turns(3)
    second, _ = bench.ask("two", max_tokens=3)
    bench.turns(3)
    assert second.over.is_set()
    assert not first.over.is_set()
    assert bench.runtime.steps == [[0], [0], [0], [0, 1], [0, 1], [0, 1]]
    bench.until_over(first)
    assert first.tokens == 10


def test_none_runs_one_request_at_a_time_on_the_same_slots() -> None:
    bench = make_bench(strategy="none")
    answers = [bench.ask(prompt, max_tokens=3)[0] for prompt in ("one", "two", "three")]
    bench.engine.turn()
    assert (bench.measures.running, bench.measures.waiting) == (1, 2)
    bench.until_over(*answers)
    assert all(len(step) == 1 for step in bench.runtime.steps)
    assert bench.settings.slots == 4


def test_waiting_requests_are_served_in_order_as_slots_become_free() -> None:
    bench = make_bench(slots=2)
    answers = [bench.ask(f"p{number}", max_tokens=2 + number)[0] for number in range(5)]
    order = []
    for _ in range(100):
        bench.engine.turn()
        order += [number for number, kept in enumerate(answers) if kept.over.is_set() and number not in order]
    assert order == [0, 1, 2, 3, 4]
    assert max(len(step) for step in bench.runtime.steps) == 2


def test_a_full_queue_refuses_but_free_slots_do_not_count_as_waiting() -> None:
    bench = make_bench(slots=2, max_queue_size=1)
    for number in range(3):
        bench.ask(f"p{number}")
    with pytest.raises(QueueFull, match="Maximum queue size of 1"):
        bench.ask("one too many")
    bench.engine.turn()
    assert (bench.measures.running, bench.measures.waiting) == (2, 1)


def test_queue_size_zero_serves_whom_a_slot_is_free_for() -> None:
    bench = make_bench(slots=1, max_queue_size=0)
    kept, _ = bench.ask("a", max_tokens=2)
    with pytest.raises(QueueFull):
        bench.ask("b")
    bench.until_over(kept)
    again, _ = bench.ask("c", max_tokens=1)
    bench.until_over(again)


def test_a_waiting_request_is_cancelled_at_once_and_never_runs() -> None:
    bench = make_bench(slots=1)
    running, _ = bench.ask("runs", max_tokens=6)
    waiting, job = bench.ask("waits")
    bench.engine.turn()
    bench.engine.cancel(job)
    assert isinstance(waiting.error, Cancelled)
    bench.until_over(running)
    bench.turns(2)
    assert bench.measures.ended["cancelled"] == 1
    assert bench.measures.prompt_tokens == len("runs")


def test_a_running_request_is_cancelled_before_its_next_token() -> None:
    bench = make_bench()
    kept, job = bench.ask("long", max_tokens=50)
    bench.turns(4)
    seen = kept.tokens
    bench.engine.cancel(job)
    bench.engine.turn()
    assert isinstance(kept.error, Cancelled)
    assert kept.tokens == seen
    assert bench.measures.slots_busy == 0
    assert bench.measures.kv_tokens_used == 0


def test_a_request_cancelled_during_its_prompt_frees_its_slot() -> None:
    bench = make_bench(prefill_tokens_per_step=4)
    kept, job = bench.ask("a prompt of more than one step", max_tokens=5)
    bench.engine.turn()
    bench.engine.cancel(job)
    bench.engine.turn()
    assert isinstance(kept.error, Cancelled)
    other, _ = bench.ask("next", max_tokens=2)
    bench.until_over(other)


def test_prompts_are_computed_in_shares_beside_the_running_batch() -> None:
    bench = make_bench(prefill_tokens_per_step=8)
    running, _ = bench.ask("run", max_tokens=30)
    bench.turns(2)
    long, _ = bench.ask("x" * 20, max_tokens=2)
    before = running.tokens
    bench.turns(3)
    assert running.tokens == before + 3
    assert bench.runtime.sizes[-3:] == [9, 9, 5]
    bench.until_over(running, long)


def test_no_lone_token_of_a_prompt_is_left_for_a_step_of_its_own() -> None:
    bench = make_bench(prefill_tokens_per_step=8)
    kept, _ = bench.ask("x" * 9, max_tokens=1)
    bench.until_over(kept)
    assert bench.runtime.sizes == [7, 2]


def test_a_prompt_that_a_slot_still_holds_is_not_computed_again() -> None:
    bench = make_bench(FakeRuntime({"The same prompt": b"yes"}))
    first, _ = bench.ask("The same prompt")
    bench.until_over(first)
    second, _ = bench.ask("The same prompt")
    bench.until_over(second)
    assert first.end is not None
    assert second.end is not None
    assert (first.end.cached_tokens, second.end.cached_tokens) == (0, 13)
    assert second.text == first.text == "yes"
    assert bench.measures.cached_tokens == 13


def test_without_a_prefix_cache_everything_is_computed() -> None:
    bench = make_bench(prefix_cache=False)
    for _ in range(2):
        kept, _ = bench.ask("The same prompt", max_tokens=2)
        bench.until_over(kept)
        assert kept.end is not None
        assert kept.end.cached_tokens == 0


def test_a_long_shared_beginning_is_copied_from_a_busy_slot() -> None:
    bench = make_bench(context_per_slot=128)
    system = "You are a helpful assistant and you answer briefly. "
    first, _ = bench.ask(system + "Who?", max_tokens=40)
    bench.turns(2)
    second, _ = bench.ask(system + "Where is it?", max_tokens=2)
    bench.until_over(first, second)
    assert bench.runtime.copies == [(0, 1)]
    assert second.end is not None
    assert second.end.cached_tokens >= len(system)


def test_a_cache_that_cannot_be_cut_is_computed_whole() -> None:
    bench = make_bench(FakeRuntime(can_cut=False))
    for _ in range(2):
        kept, _ = bench.ask("The same prompt", max_tokens=2)
        bench.until_over(kept)
        assert kept.end is not None
        assert kept.end.cached_tokens == 0


def test_a_request_beyond_its_slot_is_refused_with_the_numbers() -> None:
    bench = make_bench()
    with pytest.raises(InvalidRequest) as caught:
        bench.ask("x" * 50, max_tokens=20)
    assert caught.value.field == "max_tokens"
    for number in ("50", "20", "70", "64", "14"):
        assert number in str(caught.value)
    with pytest.raises(InvalidRequest, match="64 tokens") as caught:
        bench.ask("x" * 64, max_tokens=1)
    assert caught.value.field == "text_input"
    kept, _ = bench.ask("x" * 50, max_tokens=14)
    bench.until_over(kept)
    assert kept.tokens == 14


def test_no_number_asked_for_takes_what_is_left_of_the_slot() -> None:
    bench = make_bench()
    kept, _ = bench.ask("x" * 60, max_tokens=256, max_tokens_given=False)
    bench.until_over(kept)
    assert kept.tokens == 4


def test_an_end_id_of_the_request_ends_it_and_an_unknown_one_is_refused() -> None:
    bench = make_bench(FakeRuntime({"Hi": b"abXcd"}))
    kept, _ = bench.ask("Hi", end_id=ord("X"))
    bench.until_over(kept)
    assert kept.text == "ab"
    with pytest.raises(InvalidRequest, match="end_id"):
        bench.ask("Hi", end_id=100_000)


def test_min_tokens_keeps_an_answer_from_ending() -> None:
    bench = make_bench(FakeRuntime({"Hi": b""}))
    kept, _ = bench.ask("Hi", max_tokens=5, min_tokens=3)
    bench.until_over(kept)
    assert kept.end is not None
    assert kept.end.completion_tokens >= 4


def test_a_failed_step_ends_what_ran_in_it_and_the_next_request_runs() -> None:
    runtime = FakeRuntime()
    bench = make_bench(runtime)
    broken, _ = bench.ask("one", max_tokens=5)
    bench.turns(2)
    runtime.failures.append(EngineFailure("llama.cpp could not decode"))
    bench.engine.turn()
    assert "could not decode" in str(broken.error)
    after, _ = bench.ask("one", max_tokens=3)
    bench.until_over(after)
    assert after.end is not None
    assert after.end.cached_tokens == 0


def test_an_engine_that_keeps_failing_refuses_everything() -> None:
    runtime = FakeRuntime()
    bench = make_bench(runtime, slots=1)
    runtime.failures += [RuntimeError("boom")] * 3
    answers = [bench.ask(f"p{number}")[0] for number in range(5)]
    bench.turns(3)
    assert all(kept.error is not None for kept in answers)
    assert "boom" in str(answers[0].error)
    assert "started again" in str(answers[4].error)
    with pytest.raises(EngineFailure, match="started again"):
        bench.ask("later")


def test_stop_ends_everything_joins_and_frees_the_runtime() -> None:
    bench = make_bench(slots=1)
    bench.engine.start()
    running, _ = bench.ask("runs", max_tokens=50)
    waiting, _ = bench.ask("waits", max_tokens=50)
    bench.engine.stop()
    assert running.over.is_set()
    assert isinstance(waiting.error, ShuttingDown) or waiting.end is not None
    assert bench.runtime.closed
    with pytest.raises(ShuttingDown):
        bench.ask("too late")


def test_sixteen_threads_at_once_all_get_their_own_answer() -> None:
    prompts = {f"q{number:02}": f"answer {number}".encode() for number in range(16)}
    bench = make_bench(FakeRuntime(prompts), slots=16)
    bench.engine.start()
    try:
        answers = {prompt: bench.ask(prompt, max_tokens=30)[0] for prompt in prompts}
        wait_for(lambda: all(kept.over.is_set() for kept in answers.values()))
    finally:
        bench.engine.stop()
    assert {prompt: kept.text.encode() for prompt, kept in answers.items()} == prompts


def test_the_figures_are_those_of_what_happened() -> None:
    bench = make_bench(FakeRuntime({"Hi": b"Hello"}))
    kept, _ = bench.ask("Hi", max_tokens=20)
    bench.turns(3)
    assert bench.measures.kv_tokens_used == 4
    bench.until_over(kept)
    counters = bench.measures.counters()
    assert counters["inflight_prompt_tokens_total", ""] == 2
    assert counters["inflight_generated_tokens_total", ""] == 6
    assert counters["inflight_requests_finished_total", "stop"] == 1
    names = [name for name, _ in bench.measures.observations]
    assert names.count("inflight_ttft_seconds") == 1
    assert names.count("inflight_itl_seconds") == 5
    assert names.count("inflight_batch_size") == 6
    assert names.count("inflight_e2e_seconds") == names.count("inflight_queue_seconds") == 1


def test_log_probs_come_with_their_tokens() -> None:
    bench = make_bench(FakeRuntime({"Hi": b"ab"}))
    kept, _ = bench.ask("Hi", return_log_probs=True, num_log_probs=2)
    bench.until_over(kept)
    tokens = [one for delta in kept.deltas for one in delta.log_probs]
    assert [one.piece for one in tokens] == [b"a", b"b", b""]
    assert all(len(one.top) == 2 and one.top[0][0] == one.token for one in tokens)
    assert kept.end is not None
    assert kept.end.cumulative_log_prob == pytest.approx(sum(one.log_prob for one in tokens))


def test_seeded_sampling_repeats_and_greedy_ignores_the_seed() -> None:
    texts = set()
    for seed in (1, 1, 2):
        bench = make_bench()
        kept, _ = bench.ask("x", max_tokens=20, sampling=Sampling(temperature=50.0, top_p=1.0, seed=seed))
        bench.until_over(kept)
        texts.add((seed, kept.text))
    assert len(texts) == 2


def test_sequences_stand_in_a_step_in_the_order_of_their_numbers_without_gaps() -> None:
    """llama.cpp computes together only sequences whose numbers follow each other."""
    prompts = {f"q{number}": b"x" * 40 for number in range(4)}
    bench = make_bench(FakeRuntime(prompts))
    answers = [bench.ask(prompt, max_tokens=40) for prompt in prompts]
    bench.turns(3)
    bench.engine.cancel(answers[1][1])
    bench.engine.turn()
    assert bench.runtime.copies == [(3, 1)]
    assert bench.runtime.steps[-1] == [0, 1, 2]
    late, _ = bench.ask("late", max_tokens=2)
    bench.engine.turn()
    assert bench.runtime.order == [0, 1, 2, *[3] * len("late")]
    bench.until_over(late, *(kept for kept, job in answers if not job.cancelled))
    assert all(kept.text == "x" * 40 for kept, job in answers if not job.cancelled)
