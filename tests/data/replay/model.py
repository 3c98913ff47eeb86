"""An engine's answers as they were written down: the prompt names a case, its messages are sent one after the other.

`cases.json` beside this file is {case: [message, ...]}: {"outputs": {name: value}, "final": bool} or {"error": text};
a text is a string or {"hex": bytes}. {prompt} and {bare} in it stand for the prompt, with and without special tokens.
"""

import json
import re
from pathlib import Path

import numpy as np
import triton_python_backend_utils as pb

CASE = re.compile(r"case:([A-Za-z0-9-]+)")
NUMBERS = {"token_count": np.int32, "completion_tokens": np.int32}


class TritonPythonModel:
    def initialize(self, args):
        self._cases = json.loads((Path(__file__).parent / "cases.json").read_text(encoding="utf-8"))
        self._batched = json.loads(args["model_config"])["max_batch_size"] > 0

    def execute(self, requests):
        for request in requests:
            prompt = pb.get_input_tensor_by_name(request, "text_input").as_numpy().reshape(-1)[0].decode()
            sender = request.get_response_sender()
            ended = False
            steps = self._cases[CASE.findall(prompt)[-1]]
            for step in steps:
                if "error" in step:
                    # Our own model ends with its error; others send another message.
                    ended = step is steps[-1]
                    last = pb.TRITONSERVER_RESPONSE_COMPLETE_FINAL if ended else 0
                    sender.send(pb.InferenceResponse(error=pb.TritonError(step["error"])), flags=last)
                    continue
                final = pb.TRITONSERVER_RESPONSE_COMPLETE_FINAL if step.get("final") else 0
                ended = ended or bool(final)
                outputs = [self._tensor(name, value, prompt) for name, value in step["outputs"].items()]
                if outputs:
                    sender.send(pb.InferenceResponse(outputs), flags=final)
                else:
                    sender.send(flags=final)
            if not ended:
                sender.send(flags=pb.TRITONSERVER_RESPONSE_COMPLETE_FINAL)

    def _tensor(self, name, value, prompt):
        if name in NUMBERS:
            found = np.array([value], dtype=NUMBERS[name])
        else:
            found = np.array([self._text(value, prompt)], dtype=object)
        return pb.Tensor(name, found.reshape(1, 1) if self._batched else found)

    def _text(self, value, prompt):
        if isinstance(value, dict):
            return bytes.fromhex(value["hex"])
        bare = prompt.replace("<|im_start|>", "").replace("<|im_end|>", "")
        return value.replace("{prompt}", prompt).replace("{bare}", bare).encode()
