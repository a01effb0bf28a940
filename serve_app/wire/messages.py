"""Shapes of the messages in a chat request: roles, content, past tool calls."""

from __future__ import annotations

from typing import Annotated, Any, Literal, NotRequired, TypeAlias

from pydantic import ConfigDict, Discriminator, FailFast, Field, Tag, with_config
from typing_extensions import TypeAliasType, TypedDict

from serve_app.errors import Code

#: Fields of messages and parts that we do not read are the upstream's business: they pass.
OPEN = ConfigDict(strict=True, extra="allow")


@with_config(OPEN)
class TextPart(TypedDict):
    """Text inside a message's content."""

    type: Literal["text"]
    text: str


@with_config(OPEN)
class RefusalPart(TypedDict):
    """What an assistant said in place of an answer."""

    type: Literal["refusal"]
    refusal: str


@with_config(OPEN)
class ImageUrl(TypedDict):
    """Address or data URL of an image."""

    url: str


@with_config(OPEN)
class ImagePart(TypedDict):
    """An image inside a message's content."""

    type: Literal["image_url"]
    image_url: ImageUrl


@with_config(OPEN)
class AudioPart(TypedDict):
    """Audio inside a message's content."""

    type: Literal["input_audio"]
    input_audio: dict[str, Any]


@with_config(OPEN)
class FilePart(TypedDict):
    """A file inside a message's content."""

    type: Literal["file"]
    file: dict[str, Any]


Part: TypeAlias = Annotated[
    TextPart | RefusalPart | ImagePart | AudioPart | FilePart, Field(discriminator="type")
]


def _content_kind(value: object) -> str | None:
    """Which form of content this is; `None` where it is neither."""
    if isinstance(value, str):
        return "text"
    return "parts" if isinstance(value, list) else None


# Lists without a greatest length stop at the first fault: a million faults take minutes to report.
# (A named alias, since pydantic's marker for that cannot stand in a union by itself.)
Parts = TypeAliasType("Parts", Annotated[list[Part], Field(min_length=1), FailFast()])
Content: TypeAlias = Annotated[
    Annotated[str, Tag("text")] | Annotated[Parts, Tag("parts")],
    Discriminator(
        _content_kind,
        custom_error_type=Code.INVALID_TYPE.value,
        custom_error_message="Invalid type for a message's 'content': expected a string or an "
        "array of content parts.",
    ),
]


@with_config(OPEN)
class CalledFunction(TypedDict):
    """The function of a past tool call; its arguments are a JSON string."""

    name: str
    arguments: str


@with_config(OPEN)
class PastToolCall(TypedDict):
    """A tool call that an assistant made earlier in the conversation."""

    id: str
    type: NotRequired[Literal["function"] | None]
    function: CalledFunction


PastToolCalls = TypeAliasType("PastToolCalls", Annotated[list[PastToolCall], FailFast()])


@with_config(OPEN)
class SystemMessage(TypedDict):
    """What the model is told to be."""

    role: Literal["system", "developer"]
    content: Content


@with_config(OPEN)
class UserMessage(TypedDict):
    """What the user said."""

    role: Literal["user"]
    content: Content


@with_config(OPEN)
class AssistantMessage(TypedDict):
    """What the model said; no content where it called tools."""

    role: Literal["assistant"]
    content: NotRequired[Content | None]
    tool_calls: NotRequired[PastToolCalls | None]


@with_config(OPEN)
class ToolMessage(TypedDict):
    """What a tool gave back."""

    role: Literal["tool"]
    content: Content
    tool_call_id: str


Message: TypeAlias = Annotated[
    SystemMessage | UserMessage | AssistantMessage | ToolMessage, Field(discriminator="role")
]
