"""model.py against a stand-in for Triton's module: what it hands over, refuses and closes."""

from __future__ import annotations

import importlib
import json
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pytest
from llamacpp_contract import INPUTS, OUTPUTS

from tests.triton_model.fakes import FakeRuntime, wait_for

FINAL = 1


class TritonModelException(Exception):
    """As Triton's."""


class Request:
    """A request with its sender."""

    def __init__(self, parameters: str = "", **inputs: Any) -> None:
        self._inputs = {
            name: np.array([value if isinstance(value, list) else [value]]) for name, value in inputs.items()
        }
        self._parameters = parameters
        self.sent: list[tuple[Any, int]] = []
        self.gone = False

    def inputs(self) -> list[Any]:
        return [
            SimpleNamespace(name=lambda name=name: name, as_numpy=lambda array=array: array)
            for name, array in self._inputs.items()
        ]

    def parameters(self) -> str:
        return self._parameters

    def get_response_sender(self) -> Request:
        return self

    def send(self, response: Any, flags: int = 0) -> None:
        self.sent.append((response, flags))

    def is_cancelled(self) -> bool:
        return self.gone

    @property
    def over(self) -> bool:
        return bool(self.sent) and self.sent[-1][1] == FINAL

    @property
    def text(self) -> str:
        return b"".join(one.outputs["text_output"][0, 0] for one, _ in self.sent if not one.error).decode()


def utilities() -> ModuleType:
    module: Any = ModuleType("triton_python_backend_utils")
    module.TRITONSERVER_RESPONSE_COMPLETE_FINAL = FINAL
    module.TritonModelException = TritonModelException
    module.Tensor = lambda name, value: (name, value)
    module.InferenceResponse = lambda tensors=(), error=None: SimpleNamespace(
        outputs=dict(tensors), error=error
    )

    class TritonError(SimpleNamespace):
        INTERNAL, INVALID_ARG, UNAVAILABLE, CANCELLED = "INTERNAL", "INVALID_ARG", "UNAVAILABLE", "CANCELLED"

        def __init__(self, message: str, code: str) -> None:
            super().__init__(message=message, code=code)

    class MetricFamily:
        COUNTER, GAUGE, HISTOGRAM = "COUNTER", "GAUGE", "HISTOGRAM"

        def __init__(self, name: str, description: str, kind: str) -> None:
            self.name = name

        def Metric(self, labels: dict[str, str], buckets: list[float] | None = None) -> Any:
            return SimpleNamespace(increment=lambda v: None, set=lambda v: None, observe=lambda v: None)

    module.TritonError, module.MetricFamily = TritonError, MetricFamily
    module.Logger = SimpleNamespace(log_warn=lambda text: None, log_info=lambda text: None)
    return module


@pytest.fixture
def model_module(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Any]:
    monkeypatch.setitem(sys.modules, "triton_python_backend_utils", utilities())
    monkeypatch.delitem(sys.modules, "model", raising=False)
    module: Any = importlib.import_module("model")
    monkeypatch.setattr(
        module, "LlamaRuntime", lambda settings: FakeRuntime({"Hi": b"Hello", "Bye": b"x" * 60})
    )
    # This Python's own binary is no stub.
    stub = tmp_path / "stub"
    stub.write_bytes(b"... numpy._core ...")
    monkeypatch.setattr(module.check_numpy, "__defaults__", (stub,))
    yield module
    monkeypatch.delitem(sys.modules, "model", raising=False)


def arguments(outputs: Any = OUTPUTS, decoupled: bool = True, **parameters: str) -> dict[str, str]:
    config = {
        "model_transaction_policy": {"decoupled": decoupled},
        "parameters": {
            name: {"string_value": value} for name, value in ({"gguf_path": "x"} | parameters).items()
        },
        "output": [{"name": tensor.name} for tensor in outputs],
    }
    return {
        "model_config": json.dumps(config),
        "model_name": "demo",
        "model_version": "1",
        "model_repository": "/repository/demo",
        "model_instance_kind": "CPU",
    }


@pytest.fixture
def model(model_module: Any) -> Iterator[Any]:
    made = model_module.TritonPythonModel()
    made.initialize(arguments(slots="2", context_per_slot="64"))
    yield made
    made.finalize()


def test_a_request_is_answered_after_execute_returned(model: Any) -> None:
    request = Request(text_input=b"Hi", max_tokens=9, stream=True)
    assert model.execute([request]) is None
    wait_for(lambda: request.over)
    assert request.text == "Hello"
    assert request.sent[-1][0].outputs["finish_reason"][0, 0] == b"stop"


def test_many_requests_of_one_call_each_get_their_answer(model: Any) -> None:
    requests = [Request(text_input=b"Hi", max_tokens=9) for _ in range(5)]
    model.execute(requests)
    wait_for(lambda: all(request.over for request in requests))
    assert {request.text for request in requests} == {"Hello"}


@pytest.mark.parametrize("strategy", ["inflight", "dynamic"])
def test_tokens_alone_are_told_without_computing(
    model_module: Any, strategy: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    runtime = FakeRuntime()
    runtime.adds_bos = True
    monkeypatch.setattr(model_module, "LlamaRuntime", lambda settings: runtime)
    model = model_module.TritonPythonModel()
    model.initialize(arguments(slots="2", context_per_slot="64", strategy=strategy))
    # Longer than a slot: nothing is computed, so nothing has to fit.
    asked = Request(parameters='{"tokenize_only": true}', text_input=b"Hi" * 100)
    plain = Request(parameters='{"tokenize_only": true, "add_special_tokens": false}', text_input=b"Hi")
    wrong = Request(parameters='{"tokenize_only": "yes"}', text_input=b"Hi")
    model.execute([asked, plain, wrong])
    outputs = asked.sent[0][0].outputs
    assert json.loads(asked.text) == [1, *b"Hi" * 100]
    assert (outputs["finish_reason"][0, 0], outputs["prompt_tokens"][0, 0]) == (b"tokenized", 201)
    assert json.loads(plain.text) == [*b"Hi"]
    assert wrong.sent[0][0].error.message.startswith("tokenize_only: ")
    assert all(request.over for request in (asked, plain, wrong))
    assert runtime.steps == []
    model.finalize()


def test_one_bad_request_does_not_touch_the_others(model: Any) -> None:
    bad, good = Request(text_input=b"Hi", temperature=-1.0), Request(text_input=b"Hi", max_tokens=9)
    odd = Request(parameters='{"lora_weights": 1}', text_input=b"Hi")
    broken = Request(parameters="{", text_input=b"Hi")
    model.execute([bad, odd, broken, good])
    wait_for(lambda: good.over)
    assert bad.sent[0][0].error.code == "INVALID_ARG"
    assert odd.sent[0][0].error.message.startswith("lora_weights: ")
    assert broken.sent[0][0].error.code == "INTERNAL"
    assert good.text == "Hello"
    assert all(request.over and len(request.sent) == 1 for request in (bad, odd, broken))


def test_a_caller_that_is_gone_gets_a_cancelled_end(
    model_module: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    runtime = FakeRuntime({"Bye": b"x" * 60})
    # As slow as a real engine, so that the caller can go before the end.
    runtime.before = lambda: time.sleep(0.01)
    monkeypatch.setattr(model_module, "LlamaRuntime", lambda settings: runtime)
    model = model_module.TritonPythonModel()
    model.initialize(arguments())
    request = Request(text_input=b"Bye", max_tokens=60, stream=True)
    model.execute([request])
    wait_for(lambda: request.sent)
    request.gone = True
    wait_for(lambda: request.over)
    model.finalize()
    assert request.sent[-1][0].error.code == "CANCELLED"
    assert len(request.text) < 60


def test_outputs_that_the_configuration_does_not_declare_are_not_sent(model_module: Any) -> None:
    model = model_module.TritonPythonModel()
    model.initialize(arguments(outputs=OUTPUTS[:1]))
    request = Request(text_input=b"Hi", max_tokens=9)
    model.execute([request])
    wait_for(lambda: request.over)
    model.finalize()
    assert set(request.sent[-1][0].outputs) == {"text_output"}


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"decoupled": False}, "decoupled"),
        ({"slots": "0"}, "parameter slots"),
        ({"gguf_path": ""}, "parameter gguf_path"),
    ],
)
def test_a_bad_configuration_fails_the_load_with_a_sentence(
    model_module: Any, changes: Any, said: str
) -> None:
    with pytest.raises(TritonModelException, match=said):
        model_module.TritonPythonModel().initialize(arguments(**changes))


def test_finalize_after_a_failed_load_is_quiet(model_module: Any) -> None:
    model = model_module.TritonPythonModel()
    with pytest.raises(TritonModelException):
        model.initialize(arguments(slots="0"))
    model.finalize()


def test_a_stub_of_numpy_1_refuses_numpy_2(
    model_module: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stub = tmp_path / "old"
    stub.write_bytes(b"numpy.core.multiarray")
    monkeypatch.setattr(np, "__version__", "2.4.6")
    with pytest.raises(Exception, match="numpy below 2"):
        model_module.check_numpy(stub)
    monkeypatch.setattr(np, "__version__", "1.26.4")
    model_module.check_numpy(stub)


class Completed:
    """Triton's object for configurations to fill in."""

    def __init__(self) -> None:
        self.config: dict[str, Any] = {"input": [{"name": "text_input"}], "output": [], "max_batch_size": 0}
        self.policy: dict[str, bool] = {}

    def as_dict(self) -> dict[str, Any]:
        return self.config

    def add_input(self, entry: dict[str, Any]) -> None:
        self.config["input"].append(entry)

    def add_output(self, entry: dict[str, Any]) -> None:
        self.config["output"].append(entry)

    def set_max_batch_size(self, size: int) -> None:
        self.config["max_batch_size"] = size

    def set_model_transaction_policy(self, policy: dict[str, bool]) -> None:
        self.policy = policy


def test_a_configuration_without_tensors_is_completed(model_module: Any) -> None:
    completed = Completed()
    model_module.TritonPythonModel.auto_complete_config(completed)
    assert [entry["name"] for entry in completed.config["input"]] == [tensor.name for tensor in INPUTS]
    assert [entry["name"] for entry in completed.config["output"]] == [tensor.name for tensor in OUTPUTS]
    assert completed.config["input"][1]["optional"] is True
    assert completed.config["max_batch_size"] == 1
    assert completed.policy == {"decoupled": True}
