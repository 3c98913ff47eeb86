"""A model of Triton's python backend that keeps a GPU busy: matrix products in bf16, as many as it is asked for."""

from __future__ import annotations

import time

import torch
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    """One request: ROUNDS products of 8192 x 8192; a batch is one execution of its largest request."""

    def initialize(self, args: dict[str, str]) -> None:
        """Take the GPU that Triton gives (KIND_GPU)."""
        assert args["model_instance_kind"] == "GPU", args["model_instance_kind"]
        self._device = torch.device(f"cuda:{args['model_instance_device_id']}")
        self._matrix = torch.randn(8192, 8192, dtype=torch.bfloat16, device=self._device) / 90

    def execute(self, requests: list) -> list:
        """Answer all requests of a batch together."""
        # By DLPack and not as numpy arrays: this release's stub is compiled against numpy 1.
        asked = [
            torch.from_dlpack(pb_utils.get_input_tensor_by_name(r, "ROUNDS").to_dlpack()) for r in requests
        ]
        began = time.monotonic()
        product = self._matrix
        for _round in range(int(max(values.max() for values in asked))):
            product = self._matrix @ product
        torch.cuda.synchronize(self._device)
        seconds = torch.full((1, 1), time.monotonic() - began, dtype=torch.float32)
        answers = [
            pb_utils.Tensor.from_dlpack("SECONDS", torch.utils.dlpack.to_dlpack(seconds))
            for _request in requests
        ]
        return [pb_utils.InferenceResponse([answer]) for answer in answers]
