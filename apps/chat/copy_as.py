"""A turn's own request as a command or program to copy: curl, Python and JavaScript for the gateway, and Python that
asks the server of Triton itself.

The gateway's three carry one JSON body, `body`; the engine gets from it the same prompt and parameters as from the
playground. Their key is read from the environment: no secret is ever written into them.
"""

from __future__ import annotations

import json
import pprint
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import grpc
from django.conf import settings
from django.utils.translation import gettext as _
from tritonclient.grpc import service_pb2, service_pb2_grpc

from apps.chat import comparisons, external, selectors, sources
from apps.chat.models import Turn
from apps.chat.targets import own
from apps.core.exceptions import InflightError
from apps.serving import selectors as serving
from apps.streaming.selectors import as_source_endpoint
from apps.streaming.token_source import Endpoint, GenerationRequest
from apps.streaming.triton_messages import (
    ModelInterface,
    UnsupportedParameter,
    priority,
    tensors,
    unsupported,
)

KEY = "INFLIGHT_KEY"
# What the gateway takes less of than the playground (apps/gateway/wire/requests.py).
MOST_STOP_WORDS, MOST_TEMPERATURE = 4, 2.0
# Ours -> the body's; the others have the same name.
_RENAMED = {"stop_words": "stop"}
# Arguments of openai's create(); what else a body has goes through extra_body.
_OPENAI = frozenset(
    {
        *(
            "model",
            "messages",
            "stream",
            "stream_options",
            "max_tokens",
            "temperature",
            "top_p",
            "seed",
            "stop",
        ),
        *("presence_penalty", "frequency_penalty", "logprobs", "top_logprobs"),
    }
)
_RANDOM = ("temperature", "top_k", "top_p", "seed")
_WIDTH = 100
_TRITONCLIENT = "Python (tritonclient)"
_METADATA_SECONDS = 2.0


@dataclass(frozen=True, slots=True)
class CopyAs:
    """One way to make the request: `language` curl, python or javascript; `text` is empty where `note` says why."""

    id: str
    name: str
    language: str
    text: str
    note: str = ""

    def as_dict(self) -> dict[str, str]:
        """JSON form."""
        return {
            "id": self.id,
            "name": self.name,
            "language": self.language,
            "text": self.text,
            "note": self.note,
        }


def gateway_url() -> str:
    """Address of the gateway's chat completions, without the path's last two words."""
    return f"{settings.INFLIGHT_GATEWAY_URL.rstrip('/')}/v1"


def body(turn: Turn) -> dict[str, Any]:
    """The gateway's body of a turn's request. Reads the conversation up to the turn's question."""
    if turn.conversation.external is not None:
        return external.body_of(turn.conversation.engine_name, selectors.history(turn), turn.params)
    return body_of(turn.conversation.engine_name, selectors.history(turn), turn.params)


def body_of(model: str, messages: Sequence[Mapping[str, Any]], params: Mapping[str, Any]) -> dict[str, Any]:
    """The same of messages and a turn's parameters."""
    found: dict[str, Any] = {
        "model": model,
        "messages": list(messages),
        "stream": True,
        "stream_options": {"include_usage": True},
    }
    given = {name: value for name, value in params.items() if name not in ("priority", "logprobs")}
    if all(given.get(name) is None for name in _RANDOM):
        # The gateway draws at random where nothing is set, as OpenAI does; the playground is greedy.
        given["temperature"] = 0
    found |= {_RENAMED.get(name, name): value for name, value in given.items()}
    if params.get("logprobs") is not None:
        found |= {"logprobs": True, "top_logprobs": params["logprobs"]}
    return found


def notes(turn: Turn) -> str:
    """What the gateway would refuse or decide otherwise, in sentences; empty where nothing."""
    found = []
    if len(turn.params.get("stop_words", [])) > MOST_STOP_WORDS:
        found.append(_("The gateway takes at most %(most)d stop words.") % {"most": MOST_STOP_WORDS})
    if (turn.params.get("temperature") or 0) > MOST_TEMPERATURE:
        found.append(_("The gateway takes a temperature of at most %(most)g.") % {"most": MOST_TEMPERATURE})
    if turn.params.get("priority"):
        found.append(_("The priority of a request through the gateway is that of its key."))
    return " ".join(found)


def through_gateway(turn: Turn) -> list[CopyAs]:
    """The request for curl, Python's openai and JavaScript."""
    request, note = body(turn), notes(turn)
    return [
        CopyAs("curl", "curl", "curl", curl(request), note),
        CopyAs("openai", "Python (openai)", "python", openai(request), note),
        CopyAs("javascript", "JavaScript", "javascript", javascript(request), note),
    ]


def curl(request: Mapping[str, Any]) -> str:
    """A command line for a POSIX shell."""
    return (
        f"curl --no-buffer {gateway_url()}/chat/completions \\\n"
        f'  -H "Authorization: Bearer ${KEY}" \\\n'
        '  -H "Content-Type: application/json" \\\n'
        f"  --data-raw {shlex.quote(json.dumps(request, ensure_ascii=False, indent=2))}"
    )


def openai(request: Mapping[str, Any]) -> str:
    """A program for Python's openai."""
    given = {name: value for name, value in request.items() if name in _OPENAI}
    more = {name: value for name, value in request.items() if name not in _OPENAI}
    if more:
        given["extra_body"] = more
    arguments = "".join(f"    {name}={_literal(value, 4)},\n" for name, value in given.items())
    return (
        "import os\n\nfrom openai import OpenAI\n\n"
        f'client = OpenAI(base_url={gateway_url()!r}, api_key=os.environ["{KEY}"])\n'
        f"stream = client.chat.completions.create(\n{arguments})\n"
        "for chunk in stream:\n"
        "    if chunk.choices:\n"
        '        print(chunk.choices[0].delta.content or "", end="", flush=True)\n'
    )


def javascript(request: Mapping[str, Any]) -> str:
    """A program for Node.js and browsers, without any library."""
    return (
        f"const body = {json.dumps(request, ensure_ascii=False, indent=2)};\n\n"
        f'const response = await fetch("{gateway_url()}/chat/completions", {{\n'
        '  method: "POST",\n'
        "  headers: {\n"
        f"    Authorization: `Bearer ${{process.env.{KEY}}}`,\n"
        '    "Content-Type": "application/json",\n'
        "  },\n"
        "  body: JSON.stringify(body),\n"
        "});\n"
        "if (!response.ok) throw new Error(await response.text());\n"
        'let rest = "";\n'
        "for await (const part of response.body.pipeThrough(new TextDecoderStream())) {\n"
        '  const lines = (rest + part).split("\\n");\n'
        "  rest = lines.pop();\n"
        "  for (const line of lines) {\n"
        '    if (!line.startsWith("data: ") || line === "data: [DONE]") continue;\n'
        '    process.stdout.write(JSON.parse(line.slice(6)).choices[0]?.delta?.content ?? "");\n'
        "  }\n"
        "}\n"
    )


def tritonclient(address: str, model: str, request: GenerationRequest, interface: ModelInterface) -> str:
    """A program for Python's tritonclient that sends the very tensors which the playground sends.

    `address` is host:port of gRPC. Where the answer is drawn at random without a seed, the program has the seed that
    was drawn for it now. Raises UnsupportedParameter as apps.streaming does.
    """
    values = {
        name: (interface.inputs[name], value if isinstance(value, list) else [value])
        for name, value in tensors(request, interface).items()
    }
    listed = "".join(
        f"    ({name!r}, {datatype!r}, {_literal(value, 4)}),\n" for name, (datatype, value) in values.items()
    )
    more = dict(priority(request, interface))
    level = f"    priority={request.priority},\n" if request.priority is not None else ""
    parameters = f"    parameters={more!r},\n" if more else ""
    return (
        "import queue\n\nimport numpy as np\nimport tritonclient.grpc as triton\n"
        "from tritonclient.utils import triton_to_np_dtype\n\n"
        f"INPUTS = [\n{listed}]\n\n"
        "inputs = []\n"
        "for name, datatype, values in INPUTS:\n"
        '    if datatype == "BYTES":\n'
        "        array = np.array([[value.encode() for value in values]], dtype=np.object_)\n"
        "    else:\n"
        "        array = np.array([values], dtype=triton_to_np_dtype(datatype))\n"
        "    tensor = triton.InferInput(name, list(array.shape), datatype)\n"
        "    tensor.set_data_from_numpy(array)\n"
        "    inputs.append(tensor)\n\n"
        "answers = queue.Queue()\n"
        f"client = triton.InferenceServerClient({address!r})\n"
        "client.start_stream(lambda result, error: answers.put((result, error)))\n"
        "client.async_stream_infer(\n"
        f"    {model!r},\n"
        "    inputs,\n"
        f"{level}{parameters}"
        "    enable_empty_final_response=True,\n"
        ")\n"
        "while True:\n"
        "    result, error = answers.get()\n"
        "    if error is not None:\n"
        "        raise error\n"
        '    text = result.as_numpy("text_output")\n'
        "    if text is not None and text.size:\n"
        '        print(text.flat[0].decode(errors="replace"), end="", flush=True)\n'
        '    if result.get_response().parameters["triton_final_response"].bool_param:\n'
        "        break\n"
        "client.stop_stream()\n"
    )


def _literal(value: Any, indent: int) -> str:
    """A Python literal, broken over lines where it is long."""
    text = pprint.pformat(value, width=_WIDTH - indent, sort_dicts=False)
    return text.replace("\n", "\n" + " " * indent)


def of_turn(turn: Turn) -> list[CopyAs]:
    """Every way. Asks the turn's server which inputs its model has, for at most two seconds."""
    return [*through_gateway(turn), straight(turn)]


def straight(turn: Turn) -> CopyAs:
    """The request straight to the server that answered the turn, or to another that would answer it now."""
    try:
        request = sources.request_of(turn)
        endpoint = as_source_endpoint(_server(turn))
        text = tritonclient(endpoint.grpc_url, endpoint.model_name, request, declared(endpoint))
    except InflightError as error:
        return CopyAs("tritonclient", _TRITONCLIENT, "python", "", f"{error.sentence} {error.remedy}".strip())
    except UnsupportedParameter as error:
        return CopyAs("tritonclient", _TRITONCLIENT, "python", "", unsupported(error).sentence)
    except grpc.RpcError:
        note = _("The server does not tell which inputs its model has. Try again when it serves.")
        return CopyAs("tritonclient", _TRITONCLIENT, "python", "", note)
    note = _("The address is that of the server on its own host; from elsewhere use the gateway.")
    return CopyAs("tritonclient", _TRITONCLIENT, "python", text, note)


def declared(endpoint: Endpoint) -> ModelInterface:
    """What a server's model declares, over gRPC. Raises grpc.RpcError."""
    with grpc.insecure_channel(endpoint.grpc_url) as channel:
        asked = service_pb2.ModelMetadataRequest(name=endpoint.model_name)
        said = service_pb2_grpc.GRPCInferenceServiceStub(channel).ModelMetadata(
            asked, timeout=_METADATA_SECONDS
        )
    return ModelInterface(
        {tensor.name: tensor.datatype for tensor in said.inputs},
        frozenset(tensor.name for tensor in said.outputs),
    )


def _server(turn: Turn) -> serving.Endpoint:
    deployment = own(turn.conversation)
    rows = serving.routable_instances().filter(deployment=deployment, uid=turn.instance_uid)
    answered = rows.first() if turn.instance_uid else None
    return serving.endpoint(answered) if answered is not None else comparisons.pick(turn.conversation)
