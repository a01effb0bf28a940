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
        self._calls = _Calls()

    def feed(self, data: bytes, /) -> list[RunEvent]:
        """Take the data of one event.

        Raises:
            UpstreamError: The upstream reports an error inside its stream, or gave up.
            UpstreamProtocolError: It is not a chat chunk.
        """
        if data.strip() == DONE:
            self.done = True
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
            self._refuse_error(chunk, data)
        events: list[RunEvent] = []
        if choices is not None and not isinstance(choices, list):
            raise _not_a_chunk(data, "its 'choices' is not an array")
        for choice in cast("list[object]", choices or []):
            if not isinstance(choice, dict):
                raise _not_a_chunk(data, "a choice in it is not an object")
            fields = cast("Json", choice)
            if not fields.get("index"):  # one answer is all that is ever asked for
                self._choice(fields, data, events)
        usage = chunk.get("usage")
        if isinstance(usage, dict):
            events.append(_usage(cast("Json", usage)))
        return events

    def _refuse_error(self, chunk: Json, data: bytes) -> None:
        """Raise what a chunk without an answer in it says of a failure.

        Raises:
            UpstreamError: It reports an error, in any of the known shapes or as a bare message.
            UpstreamProtocolError: It is nothing that belongs into a chat stream.
        """
        bare = chunk if isinstance(chunk.get("message"), str) else None
        failure = error_in({"error": bare} if bare and "error" not in chunk else chunk)
        if failure is not None:
            self.finished = False  # an answer that is followed by an error is none
            raise failure
        if chunk and not chunk.keys() & {"choices", "usage"} and chunk.get("type") != "ping":
            raise _not_a_chunk(data, "it has no 'choices'")

    def _choice(self, choice: Json, data: bytes, events: list[RunEvent]) -> None:
        """Add the events of a chunk's one choice."""
        delta = choice.get("delta") or choice.get("message")
        before = len(events)
        if isinstance(delta, dict):
            self._delta(cast("Json", delta), data, events)
        elif delta is not None:
            raise _not_a_chunk(data, "its 'delta' is not an object")
        if self.finished and len(events) > before:
            self.finished = False  # it was no finish
            raise _not_a_chunk(data, "it goes on after the finish reason")
        reason = choice.get("finish_reason")
        if reason and not self.finished:  # some servers say "" until there is one
            events.append(Finish(self._reason(reason)))
            self.finished = True

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
        """One piece of a tool call."""
        function = cast("object", call.get("function"))
        if function is not None and not isinstance(function, dict):
            raise _not_a_chunk(data, "a tool call's 'function' is not an object")
        fields = cast("Json", function or {})
        identity = _text(call.get("id") or "", data)
        name = _text(fields.get("name") or "", data)
        arguments = fields.get("arguments")
        if arguments is None:
            text = ""
        else:
            text = arguments if isinstance(arguments, str) else to_json(arguments).decode()
        return ToolCallDelta(
            index=self._calls.place(call.get("index"), identity, name),
            id=identity or None,
            name=name or None,
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
            return "tool_calls" if self._calls.count else "stop"
        return ours


class _Calls:
    """Which tool call a piece belongs to. Ours are numbered from 0 as they begin.

    Servers number calls from 0 or from 1, give all of them the index 0, or give none; and some
    repeat id and name in every piece. So an id is believed before an index.
    """

    def __init__(self) -> None:
        self.count = 0
        self._by_index: dict[int, int] = {}
        self._by_id: dict[str, int] = {}
        self._with_id: set[int] = set()

    def place(self, index: object, identity: str, name: str) -> int:
        """Number of the call that a piece with these marks belongs to."""
        number = self._by_id.get(identity)
        if number is None:
            number = self._known(index, identity, name)
        if number is None:
            number = self.count
            self.count += 1
        if isinstance(index, int):
            self._by_index[index] = number
        if identity:
            self._by_id[identity] = number
            self._with_id.add(number)
        return number

    def _known(self, index: object, identity: str, name: str) -> int | None:
        """A call that has begun and that this piece goes on with, its id being new or missing."""
        if isinstance(index, int):
            number = self._by_index.get(index)
            taken = identity and number in self._with_id
            return None if taken else number
        if identity or name or not self.count:
            return None
        return self.count - 1


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
