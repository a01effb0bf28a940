"""Shape of a `/v1/chat/completions` request (clauses CHAT-1 to CHAT-4, THINK-2 to THINK-4)."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Annotated, Any, Literal, NotRequired, TypeAlias, cast

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Discriminator,
    FailFast,
    Field,
    Tag,
    with_config,
)
from pydantic_core import PydanticCustomError
from typing_extensions import TypedDict

from serve_app.errors import Code, InvalidRequestError
from serve_app.runs import Json, ReasoningEffort
from serve_app.wire.body import json_type, unknown_parameter, validate, without_nulls
from serve_app.wire.messages import OPEN, Message

#: Refused by name: wrappers and provider options that have no place on this surface.
REFUSED_FIELDS = frozenset(
    {
        "options",
        "chat_template_kwargs",
        "format",
        "keep_alive",
        "session_id",
        "timeout_sec",
        "iop",
    }
)

MAX_STOPS = 4
MAX_TOOLS = 1024


@with_config(OPEN)
class Function(TypedDict):
    """A function the model may call; `parameters` is a JSON Schema."""

    name: Annotated[str, Field(min_length=1, max_length=128)]
    description: NotRequired[str | None]
    parameters: NotRequired[dict[str, Any] | None]
    strict: NotRequired[bool | None]


@with_config(OPEN)
class Tool(TypedDict):
    """One entry of `tools`."""

    type: Literal["function"]
    function: Function


@with_config(OPEN)
class NamedFunction(TypedDict):
    """The function a caller insists on."""

    name: Annotated[str, Field(min_length=1)]


@with_config(OPEN)
class ForcedTool(TypedDict):
    """A `tool_choice` that insists on one tool."""

    type: Literal["function"]
    function: NamedFunction


def _choice_kind(value: object) -> str | None:
    """Which form of choice this is; `None` where it is neither."""
    if isinstance(value, str):
        return "word"
    return "forced" if isinstance(value, dict) else None


ToolChoice: TypeAlias = Annotated[
    Annotated[Literal["none", "auto", "required"], Tag("word")]
    | Annotated[ForcedTool, Tag("forced")],
    Discriminator(
        _choice_kind,
        custom_error_type=Code.INVALID_TYPE.value,
        custom_error_message="Invalid type for 'tool_choice': expected 'none', 'auto', "
        "'required' or an object that names a function.",
    ),
]


@with_config(OPEN)
class JsonSchema(TypedDict):
    """A named JSON Schema for the answer."""

    name: Annotated[str, Field(min_length=1, max_length=128)]
    schema: NotRequired[dict[str, Any] | None]
    strict: NotRequired[bool | None]


@with_config(OPEN)
class SchemaFormat(TypedDict):
    """An answer that has to satisfy a schema."""

    type: Literal["json_schema"]
    json_schema: JsonSchema


@with_config(OPEN)
class PlainFormat(TypedDict):
    """Plain text, or any JSON."""

    type: Literal["text", "json_object"]


ResponseFormat: TypeAlias = Annotated[SchemaFormat | PlainFormat, Field(discriminator="type")]


@with_config(OPEN)
class StreamOptions(TypedDict):
    """Only `include_usage` is read: it decides about the usage chunk at a stream's end."""

    include_usage: NotRequired[bool | None]


def _stops(value: object) -> object:
    """`stop` as a list: a single string is one stop."""
    if isinstance(value, str):
        return [value]
    if isinstance(value, list):
        return cast("object", value)
    raise PydanticCustomError(
        Code.INVALID_TYPE.value,
        "Invalid type for 'stop': expected a string or an array of strings, but got {got} instead.",
        {"got": json_type(value)},
    )


Stop: TypeAlias = Annotated[
    list[Annotated[str, Field(min_length=1)]],
    Field(max_length=MAX_STOPS),
    BeforeValidator(_stops),
]
#: More than any server counts to; some wrap around silently beyond it.
MAX_TOKENS = 2**31 - 1
Tokens: TypeAlias = Annotated[int, Field(ge=1, le=MAX_TOKENS)]
Penalty: TypeAlias = Annotated[float, Field(ge=-2, le=2)]
Seed: TypeAlias = Annotated[int, Field(ge=-(2**63), le=2**63 - 1)]


class ChatRequest(BaseModel):
    """A chat completion request. `None` means that the caller did not say."""

    model_config = ConfigDict(strict=True, extra="forbid", frozen=True)

    model: Annotated[str, Field(min_length=1)]
    messages: Annotated[list[Message], Field(min_length=1), FailFast()]
    stream: bool = False
    metadata: Any = None
    max_tokens: Tokens | None = None
    max_completion_tokens: Tokens | None = None
    temperature: Annotated[float, Field(ge=0, le=2)] | None = None
    top_p: Annotated[float, Field(ge=0, le=1)] | None = None
    presence_penalty: Penalty | None = None
    frequency_penalty: Penalty | None = None
    seed: Seed | None = None
    stop: Stop | None = None
    response_format: ResponseFormat | None = None
    tools: Annotated[list[Tool], Field(max_length=MAX_TOOLS)] | None = None
    tool_choice: ToolChoice | None = None
    parallel_tool_calls: bool | None = None
    stream_options: StreamOptions | None = None
    store: bool | None = None
    think: bool | None = None
    reasoning_effort: ReasoningEffort | None = None
    thinking_token_budget: Annotated[int, Field(ge=0, le=MAX_TOKENS)] | None = None
    include_reasoning: bool | None = None
    # Sent by habit of real clients; each asks for nothing special, or is refused.
    user: str | None = None
    n: int | None = None
    service_tier: str | None = None
    prompt_cache_key: str | None = None
    safety_identifier: str | None = None
    logprobs: bool | None = None

    @property
    def include_usage(self) -> bool:
        """True where the stream has to end with a usage chunk."""
        return bool(self.stream_options and self.stream_options.get("include_usage"))


def parse_chat(body: Json) -> ChatRequest:
    """Check a chat request against the contract.

    Raises:
        InvalidRequestError: The first fault found, naming its field.
    """
    fields = without_nulls(body)
    _refuse_by_name(fields)
    request = validate(ChatRequest, fields)
    _refuse_special(request)
    _refuse_conflicts(request)
    _check_tool_choice(request)
    return request


def _refuse_by_name(fields: Mapping[str, object]) -> None:
    """Names that are refused whatever their value: CHAT-3's, and any that CHAT-1 does not have."""
    for name in fields:
        if name in REFUSED_FIELDS:
            message = f"Unsupported parameter: '{name}' is not accepted on this endpoint."
            raise InvalidRequestError(message, param=name, code=Code.UNSUPPORTED_PARAMETER)
    unknown = next((name for name in fields if name not in ChatRequest.model_fields), None)
    if unknown is not None:
        # The first one is enough: there may be a million of them.
        raise unknown_parameter((unknown,))


#: Habit fields → the values that ask for nothing special.
_NOTHING_SPECIAL: dict[str, tuple[object, ...]] = {
    "n": (None, 1),
    "service_tier": (None, "auto", "default"),
    "logprobs": (None, False),
}


def _refuse_special(request: ChatRequest) -> None:
    """Refuse what a habit field asks for beyond the ordinary."""
    for name, accepted in _NOTHING_SPECIAL.items():
        if getattr(request, name) not in accepted:
            shown = " or ".join(json.dumps(value) for value in accepted if value is not None)
            message = f"Unsupported value for '{name}': only {shown} is supported."
            raise InvalidRequestError(message, param=name, code=Code.UNSUPPORTED_VALUE)


def _refuse_conflicts(request: ChatRequest) -> None:
    """THINK-4, on the caller's own fields and whatever the provider can do."""
    think, effort = request.think, request.reasoning_effort
    budget = request.thinking_token_budget
    conflict: tuple[str, str] | None = None
    if think is False and effort in {"low", "medium", "high"}:
        conflict = ("reasoning_effort", f"'think' is false but 'reasoning_effort' is '{effort}'")
    elif think is False and budget is not None:
        conflict = ("thinking_token_budget", "'think' is false but a thinking budget is given")
    elif effort == "none" and budget is not None:
        conflict = (
            "thinking_token_budget",
            "'reasoning_effort' is 'none' but a thinking budget is given",
        )
    elif think is True and effort == "none":
        conflict = ("reasoning_effort", "'think' is true but 'reasoning_effort' is 'none'")
    if conflict:
        param, reason = conflict
        message = f"Conflicting parameters: {reason}. Send one of the two."
        raise InvalidRequestError(message, param=param, code=Code.CONFLICTING_PARAMETERS)


def _check_tool_choice(request: ChatRequest) -> None:
    """A choice that insists on a tool needs that tool."""
    choice = request.tool_choice
    if choice is None or choice in ("none", "auto"):
        return
    names = [tool["function"]["name"] for tool in request.tools or []]
    if not names:
        message = "Invalid 'tool_choice': it insists on a tool, but 'tools' is empty."
        raise InvalidRequestError(message, param="tool_choice", code=Code.INVALID_VALUE)
    if isinstance(choice, dict) and choice["function"]["name"] not in names:
        message = "Invalid 'tool_choice': it names a function that is not in 'tools'."
        param = "tool_choice.function.name"
        raise InvalidRequestError(message, param=param, code=Code.INVALID_VALUE)
