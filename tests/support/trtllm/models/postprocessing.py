"""Stands where NVIDIA's postprocessing model does: ids to text, each message by itself."""

import numpy as np
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def execute(self, requests):
        return [self.text(request) for request in requests]

    def text(self, request):
        tokens = pb_utils.get_input_tensor_by_name(request, "TOKENS_BATCH").as_numpy()
        size = int(pb_utils.get_input_tensor_by_name(request, "SEQUENCE_LENGTH").as_numpy().flatten()[0])
        text = bytes(token - 3 for token in tokens.flatten()[:size] if token >= 3)
        return pb_utils.InferenceResponse([pb_utils.Tensor("OUTPUT", np.array([[text]], np.object_))])
