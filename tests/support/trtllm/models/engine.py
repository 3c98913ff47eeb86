"""Stands where the C++ backend does, as a python-based backend of that name: it answers with a known text.

It reads what the real one reads, refuses what that refuses in the same words, streams ids a step at a time, and stops
at the length, at a stop word, or when its caller is gone.
"""

import json
import os
import threading
import time

import numpy as np
import triton_python_backend_utils as pb_utils

TEXT = b"Once upon a time there was a fox who read every log before it went to sleep. "
STEP_SECONDS = 0.004
TYPES = {"TYPE_INT32": np.int32, "TYPE_INT64": np.int64, "TYPE_FP32": np.float32, "TYPE_UINT8": np.uint8}
MADE = ("output_ids", "sequence_length")


class TritonPythonModel:
    def initialize(self, args):
        config = json.loads(args["model_config"])
        self.parameters = {key: value["string_value"] for key, value in config["parameters"].items()}
        if self.parameters["gpt_model_type"] != "inflight_fused_batching":
            raise RuntimeError(
                "Invalid gpt_model_type. Must be v1/inflight_batching/inflight_fused_batching."
            )
        for key in ("tokenizer_dir", "guided_decoding_backend", "xgrammar_tokenizer_info_path"):
            if key not in self.parameters:
                raise RuntimeError(f"Cannot find parameter with name: {key}")
        folder = self.parameters["gpt_model_path"]
        if not os.path.isfile(f"{folder}/config.json"):
            raise RuntimeError(f"Assertion failed: File does not exist: {folder}/config.json")
        if os.path.isfile(f"{folder}/fails.txt"):
            with open(f"{folder}/fails.txt") as words:
                text = words.read()
            print(text, flush=True)
            raise RuntimeError(text.strip().splitlines()[-1])
        print("[TensorRT-LLM][INFO] Engine version 1.2.1 found in the config file.", flush=True)
        self.zeros = [
            pb_utils.Tensor(
                output["name"],
                np.zeros([1] * (len(output["dims"]) + 1), TYPES[output["data_type"]]),
            )
            for output in config["output"]
            if output["name"] not in MADE and output["data_type"] in TYPES
        ]

    def execute(self, requests):
        for request in requests:
            values = {
                name: self.value(request, name)
                for name in ("request_output_len", "streaming", "end_id", "stop_words_list")
            }
            sender = request.get_response_sender()
            threading.Thread(target=self.answer, args=(sender, values), daemon=True).start()

    def value(self, request, name):
        found = pb_utils.get_input_tensor_by_name(request, name)
        return None if found is None else found.as_numpy()

    def stops(self, values):
        words = values["stop_words_list"]
        if words is None:
            return []
        ids, ends = np.array(words).reshape(2, -1)
        found, begin = [], 0
        for end in ends:
            if end > begin:
                found.append(bytes(token - 3 for token in ids[begin:end]))
                begin = end
        return found

    def answer(self, sender, values):
        most = int(values["request_output_len"].flatten()[0])
        streams = values["streaming"] is not None and bool(values["streaming"].flatten()[0])
        stops = self.stops(values)
        text, sent = b"", 0
        for step in range(most):
            if sender.is_cancelled():
                break
            time.sleep(STEP_SECONDS)
            text += TEXT[step % len(TEXT) : step % len(TEXT) + 1]
            over = step + 1 == most or any(text.endswith(word) for word in stops)
            if streams or over:
                sender.send(
                    self.response(text[sent:]),
                    flags=pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL if over else 0,
                )
                sent = len(text)
            if over:
                return
        sender.send(flags=pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL)

    def response(self, new):
        ids = np.array([[[byte + 3 for byte in new]]], np.int32)
        made = [
            pb_utils.Tensor("output_ids", ids),
            pb_utils.Tensor("sequence_length", np.array([[ids.shape[2]]], np.int32)),
        ]
        return pb_utils.InferenceResponse([*made, *self.zeros])
