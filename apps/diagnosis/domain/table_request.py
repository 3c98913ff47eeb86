"""Rules about single requests: the server is well. See table.py for the order."""

from __future__ import annotations

from apps.diagnosis.domain.rule import Kind, Rule, rule

REQUESTS: tuple[Kind, ...] = ("server", "request")

RULES: tuple[Rule, ...] = (
    rule(
        "request_exceeds_max_seq_len",
        "A request asks for more tokens than a sequence may have.",
        [
            r"Input length \((?P<input>\d+)\) \+ max new tokens \((?P<max_new>\d+)\)"
            r"(?: \+ draft tokens \((?P<draft>\d+)\))?.*"
            r"max(?:imum)? sequence length \((?P<limit>\d+)\)",
            r"Prompt length \((?P<input>\d+)\) exceeds maximum input length \((?P<limit>\d+)\)",
            r"exceeds? (?:the )?(?:max_seq_len|max_num_tokens|maximum (?:input|sequence|context) length)",
            r"max context length \(?\d+\)? needs to be less than or equal to the max number of tokens",
        ],
        [
            "Refuse or shorten such requests before they are sent: prompt and answer together must fit.",
            "Build with a larger max_seq_len or max_num_tokens, or switch chunked context on.",
        ],
        kinds=REQUESTS,
        fatal=False,
    ),
    rule(
        "streaming_needs_decoupled",
        "Streaming was asked of a model that is not decoupled.",
        [r"Streaming is only supported (?:if model is deployed using|in) decoupled mode"],
        ["Set the transaction policy to decoupled and load the model again."],
        kinds=REQUESTS,
        fatal=False,
    ),
    rule(
        "decoupled_needs_stream",
        "A decoupled model was asked through an address that gives one answer only.",
        [r"doesn't support models with decoupled", r"generate expects model to produce exactly 1 response"],
        ["Use the streaming address, or generate with stream false."],
        kinds=REQUESTS,
        fatal=False,
    ),
    rule(
        "request_shape",
        "A request's tensors do not have the shapes or types of the model.",
        [
            r"unexpected (?:shape|datatype|dtype) for input '(?P<input_name>\w+)'",
            r"Expected batch dimension to be 1 for each request",
            r"shape does not match true shape of 'data' field",
            r"inference input '(?P<input_name>\w+)' data-type is",
        ],
        ["Build the tensors from the model's own configuration; add the batch dimension."],
        kinds=REQUESTS,
        fatal=False,
    ),
    rule(
        "queue_full",
        "The model's queue is full.",
        [r"Maximum queue size of (?P<limit>\d+) has been reached", r"Exceeds maximum queue size"],
        ["Send again later, or run more replicas."],
        kinds=REQUESTS,
        fatal=False,
    ),
    rule(
        "lora_not_in_cache",
        "The adapter of a request is not in the server's cache.",
        [r"LoRA task (?P<task>\d+) not found in cache"],
        ["Send the adapter's weights with its first request, and again after it was evicted."],
        kinds=REQUESTS,
        fatal=False,
    ),
    rule(
        "optimization_profile",
        "A request lies outside the sizes that the engine was built for.",
        [r"Runtime dimension does not satisfy any optimization profile|satisfyProfile"],
        ["Keep to the engine's limits of batch, beams and tokens."],
        kinds=REQUESTS,
        fatal=False,
    ),
    rule(
        "gpu_state_broken",
        "The GPU's state is broken; the process cannot go on.",
        [r"CUBLAS_STATUS_\w+", r"an illegal memory access was encountered", r"device-side assert"],
        ["Start the server again; if it repeats, look for Xid lines in the kernel's log."],
        kinds=("build", "server", "request"),
    ),
    rule(
        "model_not_ready",
        "The model that a request names is not loaded.",
        [
            r"Request for unknown model: '(?P<model>[^']+)'",
            r"(?:model )?'(?P<model>[^']+)'.{0,40} is not ready",
            r"is at UNAVAILABLE state",
        ],
        ["See the repository index for the model that did not load; an ensemble waits for all its steps."],
        kinds=REQUESTS,
        strength="hint",
        fatal=False,
    ),
)
