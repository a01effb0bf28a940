"""What crosses a boundary: a run's request, its events and result, a slot, a provider's facts.

Plain data only. Anything here may be pickled and sent over a Ray handle.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias

#: One JSON object as parsed from the wire.
Json: TypeAlias = dict[str, Any]

#: How a provider's trouble begins that lies with a server at a URL and not with the cluster.
UPSTREAM_DOWN = "the upstream"

FinishReason = Literal["stop", "length", "tool_calls", "content_filter"]
ReasoningEffort = Literal["none", "low", "medium", "high"]


@dataclass(frozen=True, slots=True)
class RunRequest:
    """One turn to run: the caller's request after validation, free of the surface it came by.

    `None` means that the caller did not say. Times are not here: they come from the route.
    """

    request_id: str
    model: str
    target: str
    messages: list[Json]
    max_tokens: int | None = None
    temperature: float | None = None
    top_p: float | None = None
    presence_penalty: float | None = None
    frequency_penalty: float | None = None
    seed: int | None = None
    stop: tuple[str, ...] = ()
    response_format: Json | None = None
    tools: tuple[Json, ...] = ()
    tool_choice: str | Json | None = None
    think: bool | None = None
    reasoning_effort: ReasoningEffort | None = None
    thinking_token_budget: int | None = None
    include_reasoning: bool | None = None
    workspace: str | None = None
    metadata: dict[str, str] = field(default_factory=dict[str, str])
    #: Fields that a policy put in for the upstream's body, at its top level.
    extra: Json = field(default_factory=dict[str, Any])
    #: Names of fields above that a policy put in and the caller did not send.
    injected: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class GenerationPolicy:
    """What a `models[]` entry says about output limits (clauses GEN)."""

    default_max_tokens: int | None = None
    min_max_tokens: int | None = None
    default_thinking_token_budget: int | None = None


@dataclass(slots=True)
class TextDelta:
    """A new piece of the answer's text."""

    text: str


@dataclass(slots=True)
class ReasoningDelta:
    """A new piece of the model's reasoning."""

    text: str


@dataclass(slots=True)
class ToolCallDelta:
    """A new piece of one tool call: `id` and `name` come once, `arguments` in pieces."""

    index: int
    id: str | None = None
    name: str | None = None
    arguments: str = ""


@dataclass(slots=True)
class Usage:
    """Token counts of one turn, as the upstream counted them."""

    prompt_tokens: int
    completion_tokens: int
    total_tokens: int
    cached_tokens: int | None = None
    reasoning_tokens: int | None = None


@dataclass(slots=True)
class Finish:
    """The model is done, and why."""

    reason: FinishReason


RunEvent: TypeAlias = TextDelta | ReasoningDelta | ToolCallDelta | Usage | Finish


@dataclass(slots=True)
class ToolCall:
    """One whole tool call; `arguments` is a JSON string, as on the wire."""

    id: str
    name: str
    arguments: str


@dataclass(slots=True)
class Completion:
    """A whole turn: its events, folded."""

    content: str | None
    reasoning: str | None
    tool_calls: list[ToolCall]
    finish_reason: FinishReason
    usage: Usage | None


@dataclass(frozen=True, slots=True)
class Slot:
    """The right to have one request at work at an upstream.

    It is granted by a provider's replica and holds for as long as the handle stream that
    brought it stays open.
    """

    provider: str
    #: Address of the upstream's API, without a slash at its end (`http://10.0.0.7:8000/v1`).
    url: str
    #: Headers the upstream wants, its key among them; never shown in a log or a message.
    headers: dict[str, str] = field(default_factory=dict[str, str], repr=False)
    #: Why the upstream is thought to be out of order; empty while it is well.
    trouble: str = ""


@dataclass(frozen=True, slots=True)
class ThinkControl:
    """How a kind of upstream is told about thinking: what goes into its body, as a table.

    What it has no field for is refused before anything is sent, since a server that quietly
    ignores the wish would answer with what the caller did not want.
    """

    #: Fields that switch thinking off; `None`: it cannot be switched off.
    off: Json | None = None
    #: Fields that switch thinking on; `None`: it cannot be switched on.
    on: Json | None = None
    #: Path of the field that takes the budget; empty: it takes none.
    budget: tuple[str, ...] = ()
    #: Whether `reasoning_effort` may say `low`, `medium` or `high`.
    takes_effort: bool = False


@dataclass(frozen=True, slots=True)
class ProviderFacts:
    """What is true of a kind of upstream, as data. Only what differs from the default is said.

    `deployments/providers/<type>.py` holds one for each type, as `PROVIDER`.
    """

    #: Name of the type, as in `providers[].type`.
    type: str
    #: True where the replica starts the server itself; False where it is reached by its URL.
    has_engine: bool = False
    #: Path of the chat endpoint below the provider's URL.
    chat_path: str = "/chat/completions"
    #: Path that answers 200 while the server is well, from the server's root; empty: the chat
    #: API's `/models` is asked.
    health_path: str = ""
    #: Name of the output limit in this server's schema.
    max_tokens_field: Literal["max_tokens", "max_completion_tokens"] = "max_tokens"
    #: True where `stream_options.include_usage` may be sent.
    takes_stream_options: bool = True
    #: False where the server stops at an unknown `think`, `include_reasoning` and so on.
    takes_think_fields: bool = True
    #: How it is told about thinking; `None`: it gets the caller's own fields as they are.
    think: ThinkControl | None = None
    #: True where the model's think tags come as part of the answer's text.
    leaves_think_tags: bool = False
