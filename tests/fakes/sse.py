"""Bytes and objects of a chat stream as an OpenAI-compatible server writes them.

Everything is fixed (ids, times), so that a test can compare whole outputs.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

Json = dict[str, Any]

DONE = b"data: [DONE]\n\n"
CHUNK_ID = "chatcmpl-fake"
CREATED = 1_700_000_000


def chunk(
    content: str | None = None,
    *,
    delta: Json | None = None,
    finish_reason: str | None = None,
    model: str = "fake",
    **extra: Any,
) -> Json:
    """One `chat.completion.chunk`.

    Args:
        content: The text of the delta; shorthand for `delta={"content": ...}`.
        delta: The whole delta, where it is not just text.
        finish_reason: Why the model stopped, if it did.
        model: The model's name as the upstream says it.
        **extra: More keys at the top level, or other values for the usual ones.
    """
    if delta is None:
        delta = {} if content is None else {"content": content}
    choice = {"index": 0, "delta": delta, "finish_reason": finish_reason}
    usual: Json = {
        "id": CHUNK_ID,
        "object": "chat.completion.chunk",
        "created": CREATED,
        "model": model,
        "choices": [choice],
    }
    return usual | extra


def role(content: str | None = None) -> Json:
    """The opening chunk: a role and, as llama.cpp has it, `content: null`."""
    return chunk(delta={"role": "assistant", "content": content})


def reasoning(text: str, field: str = "reasoning_content") -> Json:
    """A piece of reasoning, in the field that the server uses for it."""
    return chunk(delta={field: text})


def tool_call(
    arguments: str = "", *, index: int = 0, call_id: str | None = None, name: str | None = None
) -> Json:
    """A piece of a tool call: id and name in the first one, arguments in pieces."""
    function: Json = {"arguments": arguments}
    if name is not None:
        function["name"] = name
    call: Json = {"index": index, "function": function}
    if call_id is not None:
        call |= {"id": call_id, "type": "function"}
    return chunk(delta={"tool_calls": [call]})


def finish(reason: str = "stop") -> Json:
    """The chunk that says why the model stopped."""
    return chunk(finish_reason=reason)


def usage(prompt: int = 3, completion: int = 2) -> Json:
    """The chunk with the token counts and no choice."""
    return chunk(choices=[], usage=counts(prompt, completion))


def counts(prompt: int = 3, completion: int = 2) -> Json:
    """A `usage` object."""
    return {
        "prompt_tokens": prompt,
        "completion_tokens": completion,
        "total_tokens": prompt + completion,
    }


def frame(data: Json | str | bytes) -> bytes:
    """One event: JSON of an object, the text of a string; bytes are taken as they are."""
    if isinstance(data, bytes):
        return data
    text = data if isinstance(data, str) else json.dumps(data, ensure_ascii=False)
    return f"data: {text}\n\n".encode()


def frames(items: Iterable[Json | str | bytes], *, done: bool = False) -> bytes:
    """Several events in one piece, `[DONE]` after them where `done` is set."""
    return b"".join(map(frame, items)) + (DONE if done else b"")


def answer_text(*pieces: str, with_usage: bool = False) -> list[bytes]:
    """A whole good stream, an event an item: role, text, finish, counts if wanted, `[DONE]`."""
    items = [role(), *map(chunk, pieces), finish()]
    if with_usage:
        items.append(usage(completion=len(pieces)))
    return [*map(frame, items), DONE]


def whole(content: str = "Hello", *, finish_reason: str = "stop", **message: Any) -> Json:
    """A `chat.completion`, for callers that do not stream."""
    said: Json = {"role": "assistant", "content": content, **message}
    return {
        "id": CHUNK_ID,
        "object": "chat.completion",
        "created": CREATED,
        "model": "fake",
        "choices": [{"index": 0, "message": said, "finish_reason": finish_reason}],
        "usage": counts(),
    }
