"""The only definition of what goes over a websocket. Unknown fields are refused in both directions.

`manage.py export_realtime_schema` writes it to static/js/realtime/schema.js; a test compares the two.

Live socket (/ws/live/): connect -> hello -> subscribe (permission per topic) -> snapshot with its version ->
changes, each with the next version; the client asks for a resync at a gap. A change carries the whole of the topic
too, so applying the newest one is always right; `rows` names what changed, for lists that fetch single rows.
Chat socket (/ws/chat/<conversation id>/): hello -> ask | stop | resume | show | count -> turn_started, delta...,
turn_finished, branch, counted.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter

PROTOCOL = 1
# Close codes of our own; the browser reads them, so the socket is accepted before it is closed.
CLOSE_SIGNED_OUT = 4401
CLOSE_NOT_ALLOWED = 4403
CLOSE_TOO_SLOW = 4408
# RFC 6455 "try again later": Redis is away.
CLOSE_TRY_LATER = 1013
# RFC 6455 "service restart": what uvicorn closes with when it is asked to end.
CLOSE_RESTART = 1012
MAX_TOPICS = 50
# A topic is `<kind>` or `<kind>:<id>`: overview, builds, build:12, log:build:12, metrics:3 ...
TOPIC_PATTERN = r"^[a-z]+(:[a-z]+)?(:[0-9]+)?$"
Topic = Annotated[str, Field(pattern=TOPIC_PATTERN, max_length=60)]


class Message(BaseModel):
    """Base of every message."""

    model_config = ConfigDict(extra="forbid")


# ---------------------------------------------------------------- client -> server


class Subscribe(Message):
    """Join a topic; answered by a snapshot or an error naming the topic."""

    type: Literal["subscribe"] = "subscribe"
    topic: Topic
    # Log topics: byte offset from which the client wants lines.
    offset: int | None = Field(default=None, ge=0)
    # Metric topics: epoch seconds of the newest sample that the client has.
    since: float | None = Field(default=None, ge=0)


class Unsubscribe(Message):
    """Leave a topic."""

    type: Literal["unsubscribe"] = "unsubscribe"
    topic: Topic


class Resync(Message):
    """Ask for a fresh snapshot of a topic after a gap."""

    type: Literal["resync"] = "resync"
    topic: Topic


class Ping(Message):
    """Answered by pong; the client measures the round trip."""

    type: Literal["ping"] = "ping"
    at: float


class Ask(Message):
    """Start a turn. `regenerate` names the turn whose answer is made anew (then `prompt` is taken from it).

    `edit` names the turn beside which the question is asked in other words; `after` the turn that it follows (empty:
    none). With neither it follows what the conversation shows.
    """

    type: Literal["ask"] = "ask"
    prompt: str | None = Field(default=None, max_length=200_000)
    system_prompt: str = Field(default="", max_length=50_000)
    params: dict[str, Any] = Field(default_factory=dict)
    regenerate: str | None = Field(default=None, max_length=40)
    edit: str | None = Field(default=None, max_length=40)
    after: str | None = Field(default=None, max_length=40)


class Stop(Message):
    """Stop a running turn; the engine's request is cancelled."""

    type: Literal["stop"] = "stop"
    turn: str = Field(max_length=40)


class Resume(Message):
    """Send what follows sequence number `from_seq` and mark number `from_mark` (0: all) of a turn, and go on live."""

    type: Literal["resume"] = "resume"
    turn: str = Field(max_length=40)
    from_seq: int = Field(default=0, ge=0)
    from_mark: int = Field(default=0, ge=0)


class Show(Message):
    """Show the branch of a turn, to its newest end; with `here` it ends with the turn, so that one can go on from it.

    Answered by branch.
    """

    type: Literal["show"] = "show"
    turn: str = Field(max_length=40)
    here: bool = False


class Count(Message):
    """Ask how many tokens a question would be, after the turn `after` (empty: at the beginning).

    Answered by counted with the same `number`; `with_text` asks for the prompt itself, too.
    """

    type: Literal["count"] = "count"
    number: int = Field(ge=0)
    prompt: str = Field(default="", max_length=200_000)
    system_prompt: str = Field(default="", max_length=50_000)
    after: str = Field(default="", max_length=40)
    with_text: bool = False


LiveCommand = Annotated[Subscribe | Unsubscribe | Resync | Ping, Field(discriminator="type")]
ChatCommand = Annotated[Ask | Stop | Resume | Show | Count | Ping, Field(discriminator="type")]
live_command: TypeAdapter[Subscribe | Unsubscribe | Resync | Ping] = TypeAdapter(LiveCommand)
chat_command: TypeAdapter[Ask | Stop | Resume | Show | Count | Ping] = TypeAdapter(ChatCommand)

# ---------------------------------------------------------------- server -> client


class Hello(Message):
    """First message of every socket."""

    type: Literal["hello"] = "hello"
    protocol: int = PROTOCOL
    user: str
    server_time: float


class Snapshot(Message):
    """The whole of a topic at `version`."""

    type: Literal["snapshot"] = "snapshot"
    topic: str
    version: int
    data: dict[str, Any]


class RowChange(Message):
    """One row that changed: `key` is a build's number, else the row's id."""

    kind: str
    key: int
    state: str


class Change(Message):
    """A topic's new data at `version`; a number that is not the next one is a gap."""

    type: Literal["change"] = "change"
    topic: str
    version: int
    data: dict[str, Any]
    rows: list[RowChange] = Field(default_factory=list)


class Samples(Message):
    """Coalesced metric samples, oldest first. A value the engine does not tell is null."""

    type: Literal["samples"] = "samples"
    topic: str
    samples: list[dict[str, Any]]


class LogLines(Message):
    """Text of a log from byte `start` to byte `offset`.

    A `start` that is not the offset before it means that the file began anew (0) or that bytes were passed over.
    """

    type: Literal["log"] = "log"
    topic: str
    text: str
    start: int
    offset: int


class Problem(Message):
    """Something was refused or failed; `code` is stable, `message` and `remedy` are for a person."""

    type: Literal["error"] = "error"
    code: str
    message: str
    remedy: str = ""
    # Which input is to blame: a field of the command, or a sampling parameter.
    field: str = ""
    topic: str | None = None
    turn: str | None = None


class Pong(Message):
    """Answer to ping."""

    type: Literal["pong"] = "pong"
    at: float


class TurnStarted(Message):
    """A turn began, here or in another window of the conversation; `turn` is its row as the page shows it."""

    type: Literal["turn_started"] = "turn_started"
    turn: dict[str, Any]


class Delta(Message):
    """What was added to an answer: text, and the engine's messages that brought it.

    `seq` is the number of characters (code points) of the answer up to the end of this text, so `seq` minus the
    length of `text` is what the client must have already; `resume` continues from there. `tokens` counts the
    answer's token ids so far, not chunks; `at` is the epoch second at which its first message reached the web
    process.

    `marks` are the engine's messages from number `first_mark` (counted from 0) on, each [ms, tokens, characters]:
    milliseconds since the question was sent to the engine, ids that came with it (null where the engine does not
    count them), characters of the answer that it completed (0: part of one is held back). A fourth item, where
    log-probabilities were asked for, has one {"token", "logprob", "top": [[token, logprob], ...]} an id; logprob
    is a natural logarithm, null where the token is impossible.
    """

    type: Literal["delta"] = "delta"
    turn: str
    seq: int
    text: str
    tokens: int
    at: float
    first_mark: int = 0
    marks: list[list[Any]] = Field(default_factory=list)


class TurnFinished(Message):
    """A turn ended; `turn` is its row with state, metrics and, on failure, sentence and remedy."""

    type: Literal["turn_finished"] = "turn_finished"
    turn: dict[str, Any]


class Branch(Message):
    """The turns that the conversation shows from now on, first to last."""

    type: Literal["branch"] = "branch"
    turns: list[dict[str, Any]]


class Counted(Message):
    """Tokens of a whole prompt, and what prompt and answer may have together; null where nobody knows.

    `text` is the prompt as the engine would read it, where it was asked for; `problem` why there is none.
    """

    type: Literal["counted"] = "counted"
    number: int
    tokens: int | None
    context_tokens: int | None
    text: str | None = None
    problem: str = ""


StreamMessage = TurnStarted | Delta | TurnFinished | Branch | Counted
ServerMessage = Annotated[
    Hello | Snapshot | Change | Samples | LogLines | Problem | Pong | StreamMessage,
    Field(discriminator="type"),
]
server_message: TypeAdapter[Message] = TypeAdapter(ServerMessage)
