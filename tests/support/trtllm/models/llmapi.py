"""Stands where NVIDIA's llmapi model does: its own tensors, and in each message the whole text so far."""

import os
import threading
import time

import numpy as np
import triton_python_backend_utils as pb_utils
from helpers import first, read_arguments

TEXT = "Once upon a time there was a fox who read every log before it went to sleep. "
STEP_SECONDS = 0.004
KNOWN = {
    *(
        "model",
        "tokenizer",
        "tensor_parallel_size",
        "pipeline_parallel_size",
        "max_batch_size",
        "max_seq_len",
    ),
    *("max_num_tokens", "max_beam_width", "kv_cache_config", "scheduler_config", "enable_chunked_prefill"),
    *("guided_decoding_backend", "iter_stats_max_iterations", "request_stats_max_iterations"),
}


class TritonPythonModel:
    def initialize(self, args):
        folder = os.path.join(args["model_repository"], args["model_version"])
        arguments = read_arguments(os.path.join(folder, "model.yaml"))
        self.decoupled = arguments.pop("triton_config")["decoupled"]
        unknown = set(arguments) - KNOWN
        if unknown:
            raise RuntimeError(f"[trtllm] Failed to start engine: Extra inputs are not permitted: {unknown}")
        if not os.path.isfile(os.path.join(arguments["model"], "config.json")):
            raise RuntimeError(f"[trtllm] Failed to start engine: no model in {arguments['model']}")

    def execute(self, requests):
        for request in requests:
            sender = request.get_response_sender()
            values = {tensor.name(): tensor.as_numpy() for tensor in request.inputs()}
            threading.Thread(target=self.answer, args=(sender, values), daemon=True).start()

    def answer(self, sender, values):
        try:
            self.stream(sender, values)
        except Exception as error:
            sender.send(pb_utils.InferenceResponse(error=pb_utils.TritonError(str(error))))
        sender.send(flags=pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL)

    def stream(self, sender, values):
        prompts = values["text_input"].flatten()
        if values["text_input"].ndim != 1 or len(prompts) != 1:
            raise ValueError("Only one prompt in a request is supported.")
        streams = bool(first(values, "streaming", False))
        if streams and not self.decoupled:
            raise ValueError("Streaming is only supported in decoupled mode.")
        echo = not first(values, "sampling_param_exclude_input_from_output", False)
        most = int(first(values, "sampling_param_max_tokens", 16))
        stops = [word.decode() for word in values.get("sampling_param_stop", np.array([])).flatten()]
        assert "" not in stops, "an empty stop word ends every answer"
        text, reason = "", "length"
        for step in range(most):
            if sender.is_cancelled():
                return
            time.sleep(STEP_SECONDS)
            text += TEXT[step % len(TEXT)]
            met = next((word for word in stops if text.endswith(word)), None)
            if met is not None:
                text, reason = text.removesuffix(met), "stop"
            over = met is not None or step + 1 == most
            if streams or over:
                shown = (prompts[0].decode() if echo else "") + text
                outputs = [pb_utils.Tensor("text_output", np.array([shown.encode()], np.object_))]
                if over and first(values, "return_finish_reason", False):
                    outputs.append(pb_utils.Tensor("finish_reason", np.array([reason.encode()], np.object_)))
                sender.send(pb_utils.InferenceResponse(outputs))
            if over:
                return
