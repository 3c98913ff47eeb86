"""What goes wrong, as sentences. Each error says which field and what to do; the model maps them to Triton codes."""

from __future__ import annotations


class ModelError(Exception):
    """Base of this model's errors. `code` is the name of a TRITONSERVER error code."""

    code = "INTERNAL"


class SettingsError(ModelError):
    """A parameter of config.pbtxt cannot be used; the model does not load."""

    code = "INVALID_ARG"


class EngineLoadError(ModelError):
    """The engine cannot be opened; the model does not load."""


class EngineFailure(ModelError):
    """The engine failed while it ran; every request that it held ends with this."""


class InvalidRequest(ModelError):
    """The request cannot be run as it is; another one can. `field` is the input's name."""

    code = "INVALID_ARG"

    def __init__(self, field: str, sentence: str) -> None:
        super().__init__(f"{field}: {sentence}")
        self.field = field


class QueueFull(ModelError):
    """No place to wait; the text is the one that TensorRT-LLM's backend sends."""

    code = "UNAVAILABLE"

    def __init__(self, size: int) -> None:
        super().__init__(f"Maximum queue size of {size} has been reached, please try again later")


class Cancelled(ModelError):
    """The caller went away or asked to stop."""

    code = "CANCELLED"

    def __init__(self) -> None:
        super().__init__("The request was cancelled.")


class ShuttingDown(ModelError):
    """The model is being unloaded."""

    code = "UNAVAILABLE"

    def __init__(self) -> None:
        super().__init__("The model is being unloaded; send the request again when it is ready.")
