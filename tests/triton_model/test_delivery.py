"""Between engine and response senders: one response or a stream, one end, callers that go away."""

from __future__ import annotations

import json
import threading
from typing import Any

from llamacpp_delivery import CancelWatcher, Ticket, Writer, json_log_probs
from llamacpp_errors import Cancelled, ModelError
from llamacpp_request import GenerationRequest
from llamacpp_sequence import Delta, Finished, Job, TokenLogProb

from tests.triton_model.fakes import KeptAnswer, wait_for

FINAL = 1


class Sender:
    """A response sender that keeps what it is sent; asking it after the end is an error, as in the server."""

    def __init__(self) -> None:
        self.sent: list[tuple[Any, int]] = []
        self.gone = False
        self.asked = 0

    def send(self, response: Any, flags: int = 0) -> None:
        assert not self.over
        self.sent.append((response, flags))

    def is_cancelled(self) -> bool:
        assert not self.over
        self.asked += 1
        return self.gone

    @property
    def over(self) -> bool:
        return bool(self.sent) and self.sent[-1][1] == FINAL


def writer(log: list[str] | None = None) -> Writer:
    def plain(outputs: dict[str, Any]) -> dict[str, Any]:
        return {name: value.reshape(-1).tolist() for name, value in outputs.items()}

    made = Writer(plain, lambda error: error, FINAL, (log if log is not None else []).append)
    made.start()
    return made


def finished(text: str, tokens: int = 1) -> Finished:
    return Finished(Delta(text, tokens), "stop", 5, 4, 2, 0.5)


def test_a_stream_is_a_message_for_each_delta_and_the_last_one_has_the_totals() -> None:
    out = writer()
    sender = Sender()
    ticket = Ticket(sender, stream=True, writer=out)
    ticket.delta(Delta("Hé", 2))
    ticket.finished(finished("llo"))
    out.stop()
    (first, last) = sender.sent
    assert first == ({"text_output": ["Hé".encode()], "token_count": [2]}, 0)
    assert last[1] == FINAL
    assert last[0]["text_output"] == [b"llo"]
    assert last[0]["finish_reason"] == [b"stop"]
    assert (last[0]["prompt_tokens"], last[0]["completion_tokens"], last[0]["cached_tokens"]) == (
        [5],
        [4],
        [2],
    )
    assert last[0]["queue_seconds"] == [0.5]


def test_without_a_stream_one_response_holds_everything() -> None:
    out = writer()
    sender = Sender()
    ticket = Ticket(sender, stream=False, writer=out)
    ticket.delta(Delta("a", 1))
    ticket.delta(Delta("b", 2))
    ticket.finished(finished("c"))
    out.stop()
    assert len(sender.sent) == 1
    response, flags = sender.sent[0]
    assert (response["text_output"], response["token_count"], flags) == ([b"abc"], [4], FINAL)


def test_nothing_follows_an_error() -> None:
    out = writer()
    sender = Sender()
    ticket = Ticket(sender, stream=True, writer=out)
    ticket.delta(Delta("a", 1))
    ticket.failed(Cancelled())
    ticket.finished(finished("b"))
    out.stop()
    assert len(sender.sent) == 2
    assert isinstance(sender.sent[1][0], Cancelled)


def test_a_caller_whose_response_cannot_be_sent_does_not_hold_up_others() -> None:
    log: list[str] = []
    out = writer(log)

    class Broken(Sender):
        def send(self, response: Any, flags: int = 0) -> None:
            raise RuntimeError("gone")

    Ticket(Broken(), stream=True, writer=out).delta(Delta("a", 1))
    sender = Sender()
    Ticket(sender, stream=True, writer=out).failed(ModelError("x"))
    out.stop()
    assert sender.over
    assert "gone" in log[0]


def job() -> Job:
    return Job(1, GenerationRequest("x", 1), [1], 1, KeptAnswer(), 0.0)


def test_a_caller_that_is_gone_is_cancelled_once() -> None:
    cancelled: list[Job] = []
    watcher = CancelWatcher(cancelled.append, lambda text: None)
    watcher.start()
    out = writer()
    sender = Sender()
    ticket = Ticket(sender, stream=True, writer=out)
    ticket.job = job()
    watcher.watch(ticket)
    wait_for(lambda: sender.asked > 2)
    assert cancelled == []
    sender.gone = True
    wait_for(lambda: cancelled)
    watcher.stop()
    out.stop()
    assert cancelled == [ticket.job]


def test_a_closed_ticket_is_never_asked_again() -> None:
    watcher = CancelWatcher(lambda one: None, lambda text: None)
    out = writer()
    sender = Sender()
    ticket = Ticket(sender, stream=True, writer=out)
    ticket.job = job()
    watcher.watch(ticket)
    watcher.ask()
    ticket.failed(ModelError("over"))
    out.stop()
    asked = sender.asked
    watcher.ask()
    assert sender.asked == asked == 1
    assert not ticket.is_cancelled()


def test_closing_waits_for_a_question_that_is_under_way() -> None:
    """The server must not be asked about a request that it has already forgotten."""
    entered, leave = threading.Event(), threading.Event()

    class Slow(Sender):
        def is_cancelled(self) -> bool:
            entered.set()
            assert leave.wait(5)
            return super().is_cancelled()

    sender = Slow()
    out = writer()
    ticket = Ticket(sender, stream=True, writer=out)
    asking = threading.Thread(target=ticket.is_cancelled)
    asking.start()
    assert entered.wait(5)
    ticket.failed(ModelError("over"))
    assert not sender.sent
    leave.set()
    asking.join(5)
    out.stop()
    assert sender.over


def test_log_probs_as_json() -> None:
    one = TokenLogProb(5, "é".encode()[:1], -0.5, ((5, b"x", -0.5), (6, b"y", float("-inf"))))
    (token,) = json.loads(json_log_probs((one,)))
    assert (token["id"], token["bytes"], token["logprob"]) == (5, [0xC3], -0.5)
    assert token["top_logprobs"][1]["logprob"] is None


def test_text_that_is_kept_back_goes_out_in_order_when_released_or_overtaken_by_an_end() -> None:
    out = writer()
    out.keep_until_released()
    sender, other = Sender(), Sender()
    ticket = Ticket(sender, stream=True, writer=out)
    ticket.delta(Delta("a", 1))
    assert not sender.sent
    out.release()
    wait_for(lambda: sender.sent)
    ticket.delta(Delta("b", 1))
    Ticket(other, stream=True, writer=out).failed(Cancelled())
    wait_for(lambda: other.over)
    ticket.finished(finished("c"))
    out.stop()
    assert [response["text_output"] for response, _ in sender.sent] == [[b"a"], [b"b"], [b"c"]]


def test_several_threads_lose_and_reorder_nothing() -> None:
    out = writer()
    out.keep_until_released()
    sender = Sender()
    ticket = Ticket(sender, stream=True, writer=out)
    stop = threading.Event()

    def interrupt() -> None:
        while not stop.is_set():
            out.release()

    others = [threading.Thread(target=interrupt) for _ in range(2)]
    for thread in others:
        thread.start()
    for number in range(2000):
        ticket.delta(Delta(str(number), 1))
    stop.set()
    for thread in others:
        thread.join(10)
    ticket.finished(finished("end"))
    out.stop()
    texts = [response["text_output"][0].decode() for response, _ in sender.sent]
    assert texts == [*map(str, range(2000)), "end"]
