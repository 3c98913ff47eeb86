"""Stands where NVIDIA's preprocessing model does: prompt to ids (a byte each), in its tensors."""

import json
import os

import numpy as np
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def initialize(self, args):
        parameters = json.loads(args["model_config"])["parameters"]
        for key in ("add_special_tokens", "multimodal_model_path", "gpt_model_path", "max_num_images"):
            assert key in parameters, key
        folder = parameters["tokenizer_dir"]["string_value"]
        if not os.path.isfile(os.path.join(folder, "tokenizer.json")):
            raise OSError(f"Can't load tokenizer for '{folder}'.")

    def execute(self, requests):
        return [self.prepared(request) for request in requests]

    def prepared(self, request):
        query = pb_utils.get_input_tensor_by_name(request, "QUERY").as_numpy()
        most = pb_utils.get_input_tensor_by_name(request, "REQUEST_OUTPUT_LEN").as_numpy()
        end = pb_utils.get_input_tensor_by_name(request, "END_ID")
        words = pb_utils.get_input_tensor_by_name(request, "STOP_WORDS_DICT")
        stop = [word for word in words.as_numpy().flatten() if word] if words is not None else []
        ids = np.array([[byte + 3 for byte in query.flatten()[0]]], np.int32)
        whole = [byte + 3 for word in stop for byte in word]
        ends = list(np.cumsum([len(word) for word in stop]))
        size = max(len(whole), 1)
        rows = [whole + [0] * (size - len(whole)), ends + [-1] * (size - len(ends))]
        none = np.array([[[0], [-1]]], np.int32)
        one = np.array([[1]], np.int32)
        found = {
            "INPUT_ID": ids,
            "REQUEST_INPUT_LEN": one * ids.shape[1],
            "DECODER_INPUT_ID": one,
            "REQUEST_DECODER_INPUT_LEN": one,
            "BAD_WORDS_IDS": none,
            "STOP_WORDS_IDS": np.array([rows], np.int32),
            "EMBEDDING_BIAS": np.zeros((1, 1), np.float32),
            "REQUEST_OUTPUT_LEN": most.reshape(1, 1).astype(np.int32),
            "OUT_END_ID": one * 2 if end is None else end.as_numpy().reshape(1, 1),
            "OUT_PAD_ID": one * 2,
            "OUT_PROMPT_TABLE_EXTRA_IDS": np.zeros((1, 1), np.uint64),
        }
        return pb_utils.InferenceResponse([pb_utils.Tensor(name, value) for name, value in found.items()])
