"""A token pump: `max_tokens` responses, one every `interval_us` (default 20 ms), on a schedule that nothing shifts.

It needs no weights, so it puts a known, steady rate on whatever relays it. One thread sends everything. It never asks
whether its callers are gone: that costs more than a token.
"""

import heapq
import threading
import time

import numpy as np
import triton_python_backend_utils as pb

DEFAULT_INTERVAL_US = 20_000


class TritonPythonModel:
    def initialize(self, args):
        self._due = []
        self._changed = threading.Condition()
        self._number = 0
        threading.Thread(target=self._send_all, daemon=True).start()

    def execute(self, requests):
        for request in requests:
            tokens = self._integer(request, "max_tokens", 1)
            interval = self._integer(request, "interval_us", DEFAULT_INTERVAL_US) / 1e6
            with self._changed:
                self._number += 1
                sender = request.get_response_sender()
                heapq.heappush(
                    self._due, (time.perf_counter() + interval, self._number, sender, 0, tokens, interval)
                )
                self._changed.notify()

    @staticmethod
    def _integer(request, name, default):
        tensor = pb.get_input_tensor_by_name(request, name)
        return default if tensor is None else int(tensor.as_numpy().reshape(-1)[0])

    def _send_all(self):
        while True:
            with self._changed:
                while not self._due:
                    self._changed.wait()
                at, number, sender, index, tokens, interval = self._due[0]
                wait = at - time.perf_counter()
                if wait > 0:
                    self._changed.wait(wait)
                    continue
                heapq.heappop(self._due)
            last = index + 1 >= tokens
            text = pb.Tensor("text_output", np.array([[f" tok{index}".encode()]], dtype=object))
            final = pb.TRITONSERVER_RESPONSE_COMPLETE_FINAL if last else 0
            sender.send(pb.InferenceResponse([text]), flags=final)
            if not last:
                with self._changed:
                    heapq.heappush(self._due, (at + interval, number, sender, index + 1, tokens, interval))
