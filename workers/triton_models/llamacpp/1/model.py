"""Triton python-backend model that serves one GGUF file with continuous batching (docs/llamacpp-model.md).

Decoupled: `execute` reads the requests, hands them to the engine and returns; answers come from the writer's
thread. This file alone knows Triton; the rest of the folder is imported from beside it.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import triton_python_backend_utils as pb_utils
from llamacpp_batch import Batch
from llamacpp_contract import INPUTS, OUTPUTS
from llamacpp_delivery import CancelWatcher, Outputs, Ticket, Writer, token_outputs
from llamacpp_engine import Engine
from llamacpp_errors import ModelError
from llamacpp_measures import Family, Measures, MetricsPublisher
from llamacpp_request import read_request, read_tokenize
from llamacpp_runtime import LlamaRuntime
from llamacpp_settings import read_settings

FINAL = pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL


class TritonPythonModel:
    """The class that the python backend looks for."""

    @staticmethod
    def auto_complete_config(auto_complete_model_config: Any) -> Any:
        """Fill in tensors and policy that a configuration leaves out."""
        config = auto_complete_model_config.as_dict()
        present = {tensor["name"] for tensor in (*config["input"], *config["output"])}
        for tensors, add in (
            (INPUTS, auto_complete_model_config.add_input),
            (OUTPUTS, auto_complete_model_config.add_output),
        ):
            for tensor in tensors:
                if tensor.name not in present:
                    entry = {
                        "name": tensor.name,
                        "data_type": f"TYPE_{tensor.type}",
                        "dims": list(tensor.dims),
                    }
                    add(entry | ({"optional": True} if tensors is INPUTS and tensor.optional else {}))
        if config["max_batch_size"] == 0:
            auto_complete_model_config.set_max_batch_size(1)
        auto_complete_model_config.set_model_transaction_policy({"decoupled": True})
        return auto_complete_model_config

    def initialize(self, args: dict[str, str]) -> None:
        """Load the engine and start the threads. Raises TritonModelException with a sentence."""
        try:
            self._start(args)
        except ModelError as error:
            raise pb_utils.TritonModelException(str(error)) from error

    def _start(self, args: dict[str, str]) -> None:
        config = json.loads(args["model_config"])
        if not config.get("model_transaction_policy", {}).get("decoupled", False):
            raise ModelError("config.pbtxt: model_transaction_policy { decoupled: true } is needed.")
        check_numpy()
        parameters = {name: value["string_value"] for name, value in config.get("parameters", {}).items()}
        settings = read_settings(parameters, args["model_repository"], args.get("model_instance_kind", "CPU"))
        self._in_batches = settings.in_batches
        self._declared = frozenset(output["name"] for output in config["output"])
        self._measures = Measures(settings.max_running, settings.kv_capacity_tokens)
        log = pb_utils.Logger.log_warn
        self._writer = Writer(self._respond, refuse, FINAL, log)
        self._writer.keep_until_released()
        self._engine = Engine(LlamaRuntime(settings), settings, self._measures, self._writer.release)
        self._watcher = CancelWatcher(self._engine.cancel, log)
        labels = {"model": args["model_name"], "version": args["model_version"]}
        self._families: dict[str, Any] = {}
        self._publisher = MetricsPublisher(self._measures, self._metric, labels, log)
        for part in (self._writer, self._watcher, self._engine, self._publisher):
            part.start()
        pb_utils.Logger.log_info(
            f"{args['model_name']}: {settings.gguf_path}, strategy {settings.strategy}, {settings.slots} slots of "
            f"{settings.context_per_slot} tokens, {settings.threads} threads, KV cache {settings.kv_cache_type}"
        )

    def execute(self, requests: list[Any]) -> None:
        """Hand the requests over. Inputs are read here: their memory is the server's again after the return.

        In batches this returns only when all have ended: Triton forms the next one meanwhile.
        """
        batch = Batch() if self._in_batches else None
        for request in requests:
            sender = request.get_response_sender()
            try:
                self._accept(request, sender, batch)
            except ModelError as error:
                self._measures.finished("rejected")
                sender.send(refuse(error), flags=FINAL)
            except Exception as error:
                self._measures.finished("error")
                sender.send(refuse(ModelError(f"The request could not be read: {error!r}.")), flags=FINAL)
        if batch is not None:
            batch.seal()
            batch.wait()

    def _accept(self, request: Any, sender: Any, batch: Batch | None) -> None:
        inputs = {tensor.name(): tensor.as_numpy() for tensor in request.inputs()}
        parameters = json.loads(request.parameters() or "{}")
        if (asked := read_tokenize(inputs, parameters)) is not None:
            sender.send(self._respond(token_outputs(self._engine.tokens(asked))), flags=FINAL)
            return
        wanted = read_request(inputs, parameters)
        ticket = Ticket(sender, wanted.stream, self._writer)
        if batch is None:
            ticket.job = self._engine.submit(wanted, ticket)
        else:
            member = batch.member(ticket)
            try:
                ticket.job = self._engine.submit(wanted, member)
            except BaseException:
                batch.withdraw()
                raise
        self._watcher.watch(ticket)

    def finalize(self) -> None:
        """End everything and join, the engine first."""
        for name in ("_engine", "_watcher", "_writer", "_publisher"):
            part = getattr(self, name, None)
            if part is not None:
                part.stop()

    def _respond(self, outputs: Outputs) -> Any:
        tensors = [pb_utils.Tensor(name, value) for name, value in outputs.items() if name in self._declared]
        return pb_utils.InferenceResponse(tensors)

    def _metric(self, family: Family, labels: dict[str, str]) -> Any:
        kind = getattr(pb_utils.MetricFamily, family.kind.upper())
        if family.name not in self._families:
            self._families[family.name] = pb_utils.MetricFamily(
                name=family.name, description=family.description, kind=kind
            )
        more = {"buckets": list(family.buckets)} if family.buckets else {}
        return self._families[family.name].Metric(labels=labels, **more)


def refuse(error: ModelError) -> Any:
    """An error response with the code that the error names."""
    code = getattr(pb_utils.TritonError, error.code, pb_utils.TritonError.INTERNAL)
    return pb_utils.InferenceResponse(error=pb_utils.TritonError(str(error), code))


def check_numpy(stub: Path = Path("/proc/self/exe")) -> None:
    """Refuse a numpy that this server's python backend cannot read. Raises ModelError.

    A stub that was compiled against numpy 1 (pybind11 before 2.12, which does not know the name numpy._core) takes
    every array of numpy 2 for one with strides of zero and dies at the first text input.
    """
    if int(np.__version__.split(".")[0]) >= 2 and b"numpy._core" not in stub.read_bytes():
        raise ModelError(
            f"This Triton's python backend cannot work with numpy {np.__version__}; "
            "install a numpy below 2 in the serving environment (Python 3.12 or older)."
        )
