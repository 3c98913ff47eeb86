"""Choosing a token: greedy, penalties, top-k, top-p, bans, log-probabilities."""

from __future__ import annotations

import math
from collections import Counter
from typing import Any

import numpy as np
import pytest
from llamacpp_request import Sampling
from llamacpp_sampling import Sampler, nucleus, softmax


def row(*values: float) -> Any:
    return np.array(values, dtype=np.float32)


def piece(token: int) -> bytes:
    return bytes([97 + token])


def draws(sampling: Sampling, logits: Any, count: int = 2000, **more: Any) -> Counter[int]:
    sampler = Sampler(sampling, piece, **more)
    return Counter(sampler.choose(logits).token for _ in range(count))


def test_greedy_takes_the_likeliest_and_leaves_the_logits_alone() -> None:
    logits = row(0, 3, 1)
    assert Sampler(Sampling(), piece).choose(logits).token == 1
    assert logits.tolist() == [0, 3, 1]


def test_a_draw_follows_the_probabilities() -> None:
    found = draws(Sampling(top_p=1.0, seed=3), row(*np.log([0.5, 0.3, 0.2])))
    assert found[0] == pytest.approx(1000, abs=80)
    assert found[2] == pytest.approx(400, abs=60)


def test_temperature_sharpens_before_top_p_cuts() -> None:
    logits = row(*np.log([0.6, 0.3, 0.1]))
    assert set(draws(Sampling(top_p=0.65), logits)) == {0, 1}
    assert set(draws(Sampling(temperature=0.25, top_p=0.65), logits)) == {0}


def test_top_k_keeps_so_many() -> None:
    assert set(draws(Sampling(top_k=2), row(1, 2, 3, 2.5))) == {2, 3}


def test_the_same_seed_draws_the_same() -> None:
    logits = row(*range(10))
    first, second = (Sampler(Sampling(top_p=1.0, seed=5), piece) for _ in range(2))
    assert [first.choose(logits).token for _ in range(50)] == [second.choose(logits).token for _ in range(50)]


def test_repetition_penalty_counts_prompt_and_answer() -> None:
    sampler = Sampler(Sampling(repetition_penalty=2.0), piece)
    sampler.see_prompt([1])
    logits = row(1.0, 3.0, 2.0)
    assert sampler.choose(logits).token == 2
    assert sampler.choose(logits).token == 1
    assert sampler.choose(row(-1.0, -1.5, -1.5)).token == 0


def test_frequency_penalty_grows_with_each_time_and_presence_does_not() -> None:
    often = Sampler(Sampling(frequency_penalty=0.4), piece)
    assert [often.choose(row(1.0, 0.0)).token for _ in range(4)] == [0, 0, 0, 1]
    once = Sampler(Sampling(presence_penalty=0.4), piece)
    assert [once.choose(row(1.0, 0.0)).token for _ in range(4)] == [0, 0, 0, 0]


def test_end_tokens_are_banned_until_the_least_number_is_there() -> None:
    sampler = Sampler(Sampling(), piece, end_ids=frozenset({0}), min_tokens=2)
    assert [sampler.choose(row(9, 1, 2)).token for _ in range(3)] == [2, 2, 0]


def test_a_banned_word_never_stands_in_the_text_whatever_tokens_make_it() -> None:
    pieces = {0: b"ba", 1: b"d", 2: b"bad", 3: b"ck", 4: b"end"}
    sampler = Sampler(Sampling(), pieces.__getitem__, end_ids=frozenset({4}), banned_words=(b"bad",))
    assert sampler.choose(row(1, 2, 9, 0, 0)).token == 1
    assert sampler.choose(row(9, 2, 0, 1, 0)).token == 0
    assert sampler.choose(row(0, 9, 5, 4, 0)).token == 3
    text = b""
    random = np.random.default_rng(1)
    sampler = Sampler(Sampling(), pieces.__getitem__, end_ids=frozenset({4}), banned_words=(b"bad",))
    for _ in range(200):
        text += pieces[sampler.choose(random.standard_normal(4).astype(np.float32)).token]
    assert b"bad" not in text
    assert b"ba" in text


def test_where_every_token_is_banned_the_answer_ends() -> None:
    sampler = Sampler(Sampling(), lambda _: b"x", end_ids=frozenset({7}), banned_words=(b"x",))
    assert sampler.choose(row(1, 2, 3)).token == 7


def test_log_probs_are_those_of_the_raw_logits() -> None:
    logits = row(*np.log([0.5, 0.3, 0.2]))
    sampler = Sampler(Sampling(temperature=0.1, top_k=1), piece, log_probs=True, alternatives=2)
    choice = sampler.choose(logits)
    assert choice.log_prob == pytest.approx(math.log(0.5), abs=1e-5)
    assert [token for token, _ in choice.top] == [0, 1]
    assert choice.top[1][1] == pytest.approx(math.log(0.3), abs=1e-5)


def test_nucleus_is_the_smallest_set_that_reaches_the_mass() -> None:
    probabilities = softmax(row(*np.log([0.1, 0.5, 0.4])))
    assert nucleus(probabilities, 0.5).tolist() == [1]
    assert nucleus(probabilities, 0.51).tolist() == [1, 2]
    assert sorted(nucleus(probabilities, 0.9999).tolist()) == [0, 1, 2]
    flat = softmax(np.zeros(5000, dtype=np.float32))
    assert nucleus(flat, 0.5).size == pytest.approx(2500, abs=2)
