"""What the fake upstream can be told to do: steps, answers made of steps, and named answers.

An answer is a tuple of steps, carried out in order. `Send` puts bytes on the socket as they are;
`Chunk` wraps them as one HTTP chunk. Each is written by itself, so a cut between two steps is a
cut on the wire; a `Pause` between them makes sure that the reader sees it.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any, TypeAlias

from tests.fakes.sse import (
    DONE,
    Json,
    answer_text,
    chunk,
    counts,
    finish,
    frame,
    frames,
    role,
    whole,
)

GOLDEN = Path(__file__).parent.parent / "golden" / "providers"


@dataclass(frozen=True, slots=True)
class Head:
    """Writes the status line and headers; `chunked` announces HTTP chunks."""

    status: int = 200
    headers: tuple[tuple[str, str], ...] = (("content-type", "text/event-stream"),)
    chunked: bool = True


@dataclass(frozen=True, slots=True)
class Send:
    """Writes bytes as they are."""

    data: bytes


@dataclass(frozen=True, slots=True)
class Chunk:
    """Writes bytes as one HTTP chunk."""

    data: bytes


@dataclass(frozen=True, slots=True)
class End:
    """Ends a chunked body well; the connection may be used again."""


@dataclass(frozen=True, slots=True)
class Pause:
    """Waits."""

    seconds: float


@dataclass(frozen=True, slots=True)
class Hang:
    """Does nothing until the client leaves, the test calls `release()` or the server stops."""


@dataclass(frozen=True, slots=True)
class Reset:
    """Breaks the connection with RST."""


@dataclass(frozen=True, slots=True)
class Close:
    """Closes the connection with FIN, whatever is still owed."""


Step: TypeAlias = Head | Send | Chunk | End | Pause | Hang | Reset | Close
Answer: TypeAlias = tuple[Step, ...]
#: An answer, or a function that makes one from the request's JSON body.
Script: TypeAlias = Answer | Callable[[Json], Answer]


def reply(status: int, body: object, headers: dict[str, str] | None = None) -> Answer:
    """An ordinary answer: JSON of `body`, or its bytes or text as they are."""
    kind = "application/json"
    if isinstance(body, bytes | str):
        data = body.encode() if isinstance(body, str) else body
    else:
        data = json.dumps(body).encode()
    fields = {"content-type": kind, "content-length": str(len(data))} | (headers or {})
    return (Head(status, tuple(fields.items()), chunked=False), Send(data))


def stream(
    pieces: Iterable[bytes | Json | str],
    *,
    pause_s: float = 0.0,
    first_pause_s: float = 0.0,
    end: Sequence[Step] = (End(),),
) -> Answer:
    """A stream: each piece an HTTP chunk of its own; objects and text are framed as events."""
    steps: list[Step] = [Head()]
    if first_pause_s:
        steps.append(Pause(first_pause_s))
    for number, piece in enumerate(pieces):
        if number and pause_s:
            steps.append(Pause(pause_s))
        steps.append(Chunk(frame(piece)))
    return (*steps, *end)


def replay(data: bytes, cuts: Iterable[int] = (), *, pause_s: float = 0.0) -> Answer:
    """Exactly these bytes as the body, cut at the given offsets."""
    offsets = [0, *sorted(cuts), len(data)]
    pieces = [data[a:b] for a, b in pairwise(offsets) if b > a]
    return stream(pieces, pause_s=pause_s)


def golden(case: str, cuts: Iterable[int] = (), *, pause_s: float = 0.0) -> Answer:
    """A recorded stream of a real server (`"vllm/reasoning"`), as `replay` does it."""
    return replay((GOLDEN / f"{case}.sse").read_bytes(), cuts, pause_s=pause_s)


def text(*pieces: str, pause_s: float = 0.0, with_usage: bool = False) -> Answer:
    """A whole good stream of these pieces of text."""
    return stream(answer_text(*pieces, with_usage=with_usage), pause_s=pause_s)


def paced(count: int, pause_s: float) -> Answer:
    """A good stream of `count` text chunks, `pause_s` apart."""
    return text(*(f"w{number} " for number in range(count)), pause_s=pause_s)


def after(count: int, answer: Answer, *end: Step) -> Answer:
    """The first `count` HTTP chunks of an answer (its head, if 0), then `end` in their place."""
    kept: list[Step] = []
    seen = 0
    for step in answer:
        if isinstance(step, Chunk):
            if seen == count:
                break
            seen += 1
        kept.append(step)
        if count == 0 and isinstance(step, Head):
            break
    while kept and isinstance(kept[-1], Pause | End):
        kept.pop()
    return (*kept, *end)


def hello(body: Json) -> Answer:
    """The default: a short good answer, streamed if the request asks for it."""
    if not body.get("stream"):
        return reply(200, whole())
    options: Any = body.get("stream_options") or {}
    return text("He", "llo", with_usage=bool(options.get("include_usage")))


def _split_utf8() -> Answer:
    """Korean and emoji, with a cut inside every character of more than one byte."""
    data = b"".join(answer_text("안녕", " 🙂👍🏽", " 끝"))
    cuts = [at for at in range(1, len(data)) if data[at] & 0xC0 == 0x80]
    return replay(data, cuts, pause_s=0.001)


_GOOD = text("He", "llo", "!")
_BROKEN = '{"id":"x","choices":[{"delta":'

#: Answers by name, for a request whose model is `script:<name>`.
SCRIPTS: dict[str, Script] = {
    "hello": hello,
    "usage": text("He", "llo", with_usage=True),
    "hang_before_headers": (Hang(),),
    "hang_after_headers": (Head(), Hang()),
    "hang_after_2": after(2, _GOOD, Hang()),
    "reset_before_headers": (Reset(),),
    "reset_after_headers": (Head(), Reset()),
    "reset_after_2": after(2, _GOOD, Reset()),
    "close_before_headers": (Close(),),
    "close_after_2": after(2, _GOOD, Close()),
    "end_after_2": after(2, _GOOD, End()),
    "empty": (Head(), End()),
    "no_done": stream([role(), chunk("Hello"), finish()]),
    "no_finish": stream([role(), chunk("Hello"), DONE]),
    "bad_http_chunk": after(2, _GOOD, Send(b"zz\r\nnot a chunk\r\n"), Hang()),
    "bad_json": stream([role(), chunk("He"), _BROKEN, chunk("llo"), finish(), DONE]),
    "error_in_stream": stream([role(), {"error": {"message": "boom", "code": 500}}, DONE]),
    "error_event": stream([role(), b'event: error\ndata: {"message":"boom"}\n\n']),
    "comments": stream([b": ping\n\n", role(), b":\n\n: x\n", chunk("Hello"), finish(), DONE]),
    "empty_data": stream([b"data:\n\n", role(), b"data\n\n", chunk("Hello"), finish(), DONE]),
    "no_space": replay(b"".join(answer_text("Hello")).replace(b"data: ", b"data:")),
    "crlf": replay(b"".join(answer_text("Hello")).replace(b"\n", b"\r\n")),
    "cr": replay(b"".join(answer_text("Hello")).replace(b"\n", b"\r")),
    "bom": replay(b"\xef\xbb\xbf" + b"".join(answer_text("Hello"))),
    "multi_line_data": replay(b"".join(answer_text("Hello")).replace(b', "obj', b',\ndata: "obj')),
    "no_last_newline": replay(b"".join(answer_text("Hello")).rstrip(b"\n")),
    "early_usage": stream(
        [role(), chunk("He", usage=counts(3, 1)), chunk("llo", usage=counts(3, 2)), finish(), DONE]
    ),
    "many_tokens": stream([frames([role(), chunk("one two "), chunk("three"), finish()]), DONE]),
    "finish_with_text": stream([role(), chunk("Hello", finish_reason="length"), DONE]),
    "split_utf8": _split_utf8(),
    "not_json": reply(200, "<html>hello</html>", {"content-type": "text/html"}),
    "error_429": reply(429, {"error": {"message": "slow down"}}, {"retry-after": "7"}),
    "error_500": reply(500, {"error": {"message": "boom", "type": "server_error"}}),
    "error_503": reply(503, {"detail": {"error": "text_generation_busy"}}),
    "error_text": reply(502, "bad gateway", {"content-type": "text/plain"}),
}


def named(name: str) -> Script | None:
    """A named answer: one of `SCRIPTS`, `golden:<case>`, `status:<n>` or `paced:<n>:<ms>`."""
    kind, _, rest = name.partition(":")
    if kind == "golden":
        return golden(rest)
    if kind == "status":
        return reply(int(rest), {"error": {"message": f"fake answer {rest}"}})
    if kind == "paced":
        count, _, ms = rest.partition(":")
        return paced(int(count), int(ms or 0) / 1000)
    return SCRIPTS.get(name)
