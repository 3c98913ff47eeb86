"""Stands where NVIDIA's tensorrt_llm_bls does: it calls the steps itself and passes the text on as it comes."""

import json

import numpy as np
import triton_python_backend_utils as pb_utils
from lib.decode import QUERY_INPUTS
from lib.triton_decoder import ENGINE_INPUTS


class TritonPythonModel:
    def initialize(self, args):
        parameters = json.loads(args["model_config"])["parameters"]
        self.engine = parameters["tensorrt_llm_model_name"]["string_value"]
        self.accumulates = parameters["accumulate_tokens"]["string_value"] == "true"

    def execute(self, requests):
        for request in requests:
            sender = request.get_response_sender()
            try:
                self.answer(request, sender)
            except Exception as error:
                sender.send(pb_utils.InferenceResponse(error=pb_utils.TritonError(str(error))))
            sender.send(flags=pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL)

    def call(self, model, outputs, inputs, **how):
        asked = pb_utils.InferenceRequest(model_name=model, requested_output_names=outputs, inputs=inputs)
        return asked.exec(**how)

    def answer(self, request, sender):
        given = {}
        for ours, theirs in QUERY_INPUTS.items():
            tensor = pb_utils.get_input_tensor_by_name(request, ours)
            if tensor is not None:
                given[theirs] = tensor.as_numpy()
        ready = self.call(
            "preprocessing",
            [*ENGINE_INPUTS],
            [pb_utils.Tensor(name, value) for name, value in given.items()],
        )
        if ready.has_error():
            raise RuntimeError(ready.error().message())
        inputs = [
            pb_utils.Tensor(ENGINE_INPUTS[tensor.name()], tensor.as_numpy())
            for tensor in ready.output_tensors()
        ]
        inputs.append(pb_utils.Tensor("streaming", np.array([[True]])))
        whole = b""
        names = ["output_ids", "sequence_length"]
        for step in self.call(self.engine, names, inputs, decoupled=True):
            if step.has_error():
                raise RuntimeError(step.error().message())
            if not step.output_tensors():
                continue
            made = {tensor.name(): tensor.as_numpy() for tensor in step.output_tensors()}
            text = self.call(
                "postprocessing",
                ["OUTPUT"],
                [
                    pb_utils.Tensor("TOKENS_BATCH", made["output_ids"]),
                    pb_utils.Tensor("SEQUENCE_LENGTH", made["sequence_length"]),
                ],
            )
            new = text.output_tensors()[0].as_numpy().flatten()[0]
            whole += new
            shown = whole if self.accumulates else new
            sender.send(
                pb_utils.InferenceResponse([pb_utils.Tensor("text_output", np.array([[shown]], np.object_))])
            )
