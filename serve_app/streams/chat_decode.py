"""Chunks of an upstream's chat stream to events.

Written against what real servers send: null content beside the role, several tokens a chunk,
usage early, late or never, `reasoning` for `reasoning_content`, tool calls without an index,
an error object inside a 200, and a whole completion where a stream was asked for.
"""

from __future__ import annotations

from typing import cast

from pydantic_core import from_json, to_json

from serve_app.errors import Code, UpstreamError, UpstreamProtocolError
from serve_app.runs import (
    Finish,
    FinishReason,
    Json,
    ReasoningDelta,
    RunEvent,
    TextDelta,
    ToolCallDelta,
    Usage,
)
from serve_app.streams.sse import DONE
from serve_app.streams.upstream_error import error_in

#: An upstream's word → ours. A word that is not here counts as `stop`.
_REASONS: dict[str, FinishReason] = {
    "stop": "stop",
    "length": "length",
    "max_tokens": "length",
    "tool_calls": "tool_calls",
    "function_call": "tool_calls",
    "content_filter": "content_filter",
}

#: Words by which a server says that it gave up: never a clean end.
_ABORTED = frozenset({"abort", "aborted", "error", "cancelled", "canceled", "timeout"})

_EXCERPT_CHARS = 200


class ChatDecoder:
    """Data of chat events in, `RunEvent`s out. A `Step[bytes, RunEvent]`."""

    def __init__(self) -> None:
        self.finished = False
        self.done = False
        self._saw_tool_call = False
        self._last_call = -1

    def feed(self, data: bytes, /) -> list[RunEvent]:
        """Take the data of one event.

        Raises:
            UpstreamError: The upstream reports an error inside its stream, or gave up.
            UpstreamProtocolError: It is not a chat chunk.
        """
        if data == DONE:
            self.done = True
            return []
        if self.done:
            return []
        try:
            chunk = from_json(data)
        except ValueError:
            raise _not_a_chunk(data, "it is not JSON") from None
        if not isinstance(chunk, dict):
            raise _not_a_chunk(data, "it is not an object")
        return self._chunk(cast("Json", chunk), data)

    def finish(self) -> list[RunEvent]:
        """The stream is over.

        Raises:
            UpstreamProtocolError: It ended without a finish reason, so it was cut off.
        """
        if not self.finished:
            message = "The upstream's stream ended before the answer was finished."
            raise UpstreamProtocolError(message, code=Code.UPSTREAM_DISCONNECTED)
        return []

    def _chunk(self, chunk: Json, data: bytes) -> list[RunEvent]:
        """Events of one chunk, in the order in which a caller has to see them."""
        choices = chunk.get("choices")
        if choices is None or "error" in chunk:
            failure = error_in(chunk)
            if failure is not None:
                raise failure
        events: list[RunEvent] = []
        if choices:
            if not isinstance(choices, list) or not isinstance(choices[0], dict):
                raise _not_a_chunk(data, "its 'choices' is not an array of objects")
            choice = cast("Json", choices[0])
            if choice.get("index", 0) == 0:
                self._choice(choice, data, events)
        usage = chunk.get("usage")
        if isinstance(usage, dict):
            events.append(_usage(cast("Json", usage)))
        return events

    def _choice(self, choice: Json, data: bytes, events: list[RunEvent]) -> None:
        """Add the events of a chunk's one choice."""
        delta = choice.get("delta") or choice.get("message")
        before = len(events)
        if isinstance(delta, dict):
            self._delta(cast("Json", delta), data, events)
        elif delta is not None:
            raise _not_a_chunk(data, "its 'delta' is not an object")
        if self.finished and len(events) > before:
            raise _not_a_chunk(data, "it goes on after the finish reason")
        reason = choice.get("finish_reason")
        if reason is not None and not self.finished:
            self.finished = True
            events.append(Finish(self._reason(reason)))

    def _delta(self, delta: Json, data: bytes, events: list[RunEvent]) -> None:
        """Add the events of one delta."""
        reasoning = delta.get("reasoning_content") or delta.get("reasoning")
        if reasoning:
            events.append(ReasoningDelta(_text(reasoning, data)))
        content = delta.get("content") or delta.get("refusal")
        if content:
            events.append(TextDelta(_text(content, data)))
        calls = delta.get("tool_calls")
        if calls:
            if not isinstance(calls, list):
                raise _not_a_chunk(data, "its 'tool_calls' is not an array")
            for call in cast("list[object]", calls):
                if not isinstance(call, dict):
                    raise _not_a_chunk(data, "a tool call in it is not an object")
                events.append(self._tool_call(cast("Json", call), data))

    def _tool_call(self, call: Json, data: bytes) -> ToolCallDelta:
        """One piece of a tool call. Without an index, a new id begins a new call."""
        function = call.get("function") or {}
        if not isinstance(function, dict):
            raise _not_a_chunk(data, "a tool call's 'function' is not an object")
        fields = cast("Json", function)
        self._saw_tool_call = True
        index = call.get("index")
        if not isinstance(index, int):
            new = call.get("id") or fields.get("name") or self._last_call < 0
            index = self._last_call + 1 if new else self._last_call
        self._last_call = max(self._last_call, index)
        arguments = fields.get("arguments")
        if arguments is None:
            text = ""
        else:
            text = arguments if isinstance(arguments, str) else to_json(arguments).decode()
        name = fields.get("name")
        identity = call.get("id")
        return ToolCallDelta(
            index=index,
            id=_text(identity, data) if identity else None,
            name=_text(name, data) if name else None,
            arguments=text,
        )

    def _reason(self, reason: object) -> FinishReason:
        """Our word for why it ended, in agreement with what really came."""
        word = str(reason)
        if word in _ABORTED:
            message = f"The upstream gave up before the answer was finished ('{word}')."
            raise UpstreamError(message)
        ours = _REASONS.get(word, "stop")
        if ours in {"stop", "tool_calls"}:
            return "tool_calls" if self._saw_tool_call else "stop"
        return ours


def _text(value: object, data: bytes) -> str:
    """A field that has to be a string."""
    if not isinstance(value, str):
        raise _not_a_chunk(data, "a text field in it is not a string")
    return value


def _usage(usage: Json) -> Usage:
    """Token counts, whatever of them the upstream gives."""
    prompt = _count(usage.get("prompt_tokens")) or 0
    completion = _count(usage.get("completion_tokens")) or 0
    return Usage(
        prompt_tokens=prompt,
        completion_tokens=completion,
        total_tokens=_count(usage.get("total_tokens")) or prompt + completion,
        cached_tokens=_detail(usage.get("prompt_tokens_details"), "cached_tokens"),
        reasoning_tokens=_detail(usage.get("completion_tokens_details"), "reasoning_tokens"),
    )


def _detail(details: object, name: str) -> int | None:
    """One count out of a details object that may be missing."""
    return _count(cast("Json", details).get(name)) if isinstance(details, dict) else None


def _count(value: object) -> int | None:
    """A token count, or nothing where it is none."""
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def _not_a_chunk(data: bytes, reason: str) -> UpstreamProtocolError:
    excerpt = data[:_EXCERPT_CHARS].decode(errors="replace")
    return UpstreamProtocolError(f"The upstream sent a broken stream chunk ({reason}): {excerpt}")
