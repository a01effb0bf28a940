"""Events to the chat surface: `chat.completion.chunk` frames, or one `chat.completion`."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from pydantic_core import to_json

from serve_app.errors import GatewayError
from serve_app.runs import (
    Completion,
    Finish,
    FinishReason,
    Json,
    ReasoningDelta,
    RunEvent,
    TextDelta,
    ToolCallDelta,
    Usage,
)
from serve_app.streams.sse import DONE_FRAME, frame
from serve_app.wire.errors import envelope


class ChatEncoder:
    """Events in, whole frames out. A `Step[RunEvent, bytes]`.

    The finish chunk waits for the stream's end, since the usage chunk has to come after it and
    upstreams send usage before, with or after their own.

    Args:
        completion_id: The answer's id (`chatcmpl-…`), the same in every chunk.
        created: Seconds since the epoch.
        model: The model as the caller wrote it.
        include_usage: Whether the caller asked for a usage chunk.
    """

    def __init__(
        self, *, completion_id: str, created: int, model: str, include_usage: bool = False
    ) -> None:
        head = {
            "id": completion_id,
            "object": "chat.completion.chunk",
            "created": created,
            "model": model,
        }
        # Everything around a delta is the same in every chunk, so it is serialized once.
        self._head = b"data: " + to_json(head)[:-1]
        self._before = self._head + b',"choices":[{"index":0,"delta":'
        self._usage_null = b',"usage":null' if include_usage else b""
        self._after = b',"logprobs":null,"finish_reason":null}]' + self._usage_null + b"}\n\n"
        self._include_usage = include_usage
        self._completion_id = completion_id
        self._started = False
        self._usage: Usage | None = None
        self._reason: FinishReason = "stop"
        self._named: set[int] = set()
        self._nameless: dict[int, ToolCallDelta] = {}

    def feed(self, event: RunEvent, /) -> list[bytes]:
        """Take one event."""
        delta = b""
        match event:
            case TextDelta(text) if text:
                delta = b'{"content":' + to_json(text) + b"}"
            case ReasoningDelta(text) if text:
                delta = b'{"reasoning_content":' + to_json(text) + b"}"
            case ToolCallDelta():
                delta = self._tool_call(event)
            case Usage():
                self._usage = event
            case Finish(reason):
                self._reason = reason
            case _:  # an empty delta says nothing
                pass
        return [*self._start(), self._before + _line(delta) + self._after] if delta else []

    def finish(self) -> list[bytes]:
        """The finish chunk, the usage chunk where it was asked for, and `[DONE]`."""
        frames = self._start()
        for nameless in self._nameless.values():
            frames.append(self._before + _line(self._first_piece(nameless)) + self._after)
        end = b'{},"logprobs":null,"finish_reason":' + to_json(self._reason)
        frames.append(self._before + end + b"}]" + self._usage_null + b"}\n\n")
        if self._include_usage and self._usage is not None:
            usage = to_json(usage_object(self._usage))
            frames.append(self._head + b',"choices":[],"usage":' + usage + b"}\n\n")
        return [*frames, DONE_FRAME]

    def _start(self) -> list[bytes]:
        """The role chunk, once."""
        if self._started:
            return []
        self._started = True
        return [self._before + b'{"role":"assistant","content":""}' + self._after]

    def _tool_call(self, piece: ToolCallDelta) -> bytes:
        """A tool call's delta; nothing where there is none to send yet.

        Id, type and name stand in its first delta, arguments alone in later ones. What comes
        before the name is held back, for no later delta could name the call.
        """
        if piece.index in self._named:
            if not piece.arguments:
                return b""
            function = {"arguments": piece.arguments}
            return to_json({"tool_calls": [{"index": piece.index, "function": function}]})
        held = self._nameless.pop(piece.index, None)
        if held is not None:
            piece = replace(
                piece, id=held.id or piece.id, arguments=held.arguments + piece.arguments
            )
        if not piece.name:
            self._nameless[piece.index] = piece
            return b""
        self._named.add(piece.index)
        return self._first_piece(piece)

    def _first_piece(self, piece: ToolCallDelta) -> bytes:
        """The delta that begins a tool call."""
        call = {
            "index": piece.index,
            "id": piece.id or made_call_id(self._completion_id, piece.index),
            "type": "function",
            "function": {"name": piece.name or "", "arguments": piece.arguments},
        }
        return to_json({"tool_calls": [call]})


def _line(data: bytes) -> bytes:
    """JSON without the characters at which some clients wrongly end a line of the stream."""
    if b"\xe2\x80" in data:
        data = data.replace(b"\xe2\x80\xa8", rb"\u2028").replace(b"\xe2\x80\xa9", rb"\u2029")
    return data.replace(b"\xc2\x85", rb"\u0085") if b"\xc2\x85" in data else data


def error_frame(error: GatewayError) -> bytes:
    """The last frame of a stream that failed; no `[DONE]` follows it."""
    return frame(_line(envelope(error)))


def chat_completion(
    turn: Completion, *, completion_id: str, created: int, model: str
) -> dict[str, Any]:
    """A whole `chat.completion` object."""
    message: Json = {"role": "assistant", "content": turn.content, "refusal": None}
    if turn.reasoning:
        message["reasoning_content"] = turn.reasoning
    if turn.tool_calls:
        message["tool_calls"] = [
            {
                "id": call.id or made_call_id(completion_id, index),
                "type": "function",
                "function": {"name": call.name, "arguments": call.arguments},
            }
            for index, call in enumerate(turn.tool_calls)
        ]
    elif turn.content is None:
        # Clients read a missing text as an error; an empty answer is an empty string.
        message["content"] = ""
    choice = {
        "index": 0,
        "message": message,
        "logprobs": None,
        "finish_reason": turn.finish_reason,
    }
    return {
        "id": completion_id,
        "object": "chat.completion",
        "created": created,
        "model": model,
        "choices": [choice],
        "usage": usage_object(turn.usage) if turn.usage is not None else None,
    }


def made_call_id(completion_id: str, index: int) -> str:
    """An id for a tool call that the upstream left without one, unique as the answer's own."""
    return f"call_{completion_id.removeprefix('chatcmpl-')}_{index}"


def usage_object(usage: Usage) -> Json:
    """`usage` as on the wire; details only where the upstream gave them."""
    shown: Json = {
        "prompt_tokens": usage.prompt_tokens,
        "completion_tokens": usage.completion_tokens,
        "total_tokens": usage.total_tokens,
    }
    if usage.cached_tokens is not None:
        shown["prompt_tokens_details"] = {"cached_tokens": usage.cached_tokens}
    if usage.reasoning_tokens is not None:
        shown["completion_tokens_details"] = {"reasoning_tokens": usage.reasoning_tokens}
    return shown
