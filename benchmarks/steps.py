"""What one chunk costs in the gateway's own code: bytes in, every step, bytes out; no I/O.

    python benchmarks/steps.py

Prints, for each kind of text, microseconds a chunk: the median and the 99th percentile over single
chunks, each timed by itself, so that the slowest chunk of an answer shows.
"""

from __future__ import annotations

import gc
import json
import time
from collections.abc import Callable, Sequence

from serve_app.runs import Json
from serve_app.streams.chat_decode import ChatDecoder
from serve_app.streams.chat_encode import ChatEncoder
from serve_app.streams.pipeline import Pipeline
from serve_app.streams.reasoning_only import ReasoningOnly
from serve_app.streams.sentinels import Sentinels
from serve_app.streams.sse import SseDecoder
from serve_app.streams.tool_text import ToolText
from serve_app.tools.toolset import ToolSet

CHUNKS = 20_000

TOOL: Json = {
    "type": "function",
    "function": {
        "name": "read_file",
        "parameters": {"type": "object", "properties": {"path": {"type": "string"}}},
    },
}

#: Kind of text → the pieces that are sent over and over.
TEXTS: dict[str, Sequence[str]] = {
    "prose": ["The ", "gate", "way ", "adds ", "little", ". "],
    "code": ["if (a ", "< b) {", " x = {}", "; }\n", "<div>", "</div>\n"],
    "korean": ["안녕", "하세요", " 😀 ", "게이트", "웨이"],
}


def frame(text: str) -> bytes:
    """One upstream event."""
    choice = {"index": 0, "delta": {"content": text}, "finish_reason": None}
    body = {"id": "x", "object": "chat.completion.chunk", "model": "m", "choices": [choice]}
    return b"data: " + json.dumps(body).encode() + b"\n\n"


def path(*, tools: bool, steps: bool) -> Callable[[bytes], bytes]:
    """Everything between the upstream's bytes and the caller's."""
    sse, decoder = SseDecoder(), ChatDecoder()
    encoder = ChatEncoder(completion_id="chatcmpl-1", created=1, model="m")
    text = ToolText(ToolSet([TOOL]), choice=None, call_prefix="1")
    ours = [Sentinels(), ReasoningOnly(include_reasoning=None)] if steps else []
    pipeline = Pipeline([text, *ours] if tools else ours)

    def run(chunk: bytes) -> bytes:
        events = [event for data in sse.feed(chunk) for event in decoder.feed(data)]
        return b"".join(out for event in pipeline.feed(events) for out in encoder.feed(event))

    return run


def measure(run: Callable[[bytes], bytes], pieces: Sequence[str]) -> tuple[float, float]:
    """Median and 99th percentile of single chunks, in microseconds."""
    frames = [frame(piece) for piece in pieces]
    times: list[int] = []
    clock = time.perf_counter_ns
    for number in range(CHUNKS):
        chunk = frames[number % len(frames)]
        began = clock()
        run(chunk)
        times.append(clock() - began)
    times.sort()
    return times[CHUNKS // 2] / 1000, times[CHUNKS * 99 // 100] / 1000


def main() -> None:
    """Measure and print."""
    gc.disable()
    ways = {
        "no steps": path(tools=False, steps=False),
        "no tools": path(tools=False, steps=True),
        "tools, every step": path(tools=True, steps=True),
    }
    print(f"{'µs a chunk':20}" + "".join(f"{name:>24}" for name in ways))
    print(f"{'':20}" + f"{'median':>16}{'p99':>8}" * len(ways))
    for kind, pieces in TEXTS.items():
        cells = [measure(run, pieces) for run in ways.values()]
        print(f"{kind:20}" + "".join(f"{middle:16.1f}{late:8.1f}" for middle, late in cells))


if __name__ == "__main__":
    main()
