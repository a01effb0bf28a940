"""The cases of `tests/golden/toolcalls`, and turns of a model fed to `ToolText`."""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

from serve_app.errors import ToolValidationError
from serve_app.runs import (
    Completion,
    Finish,
    FinishReason,
    Json,
    ReasoningDelta,
    RunEvent,
    TextDelta,
    ToolCallDelta,
)
from serve_app.streams.collect import Collector
from serve_app.streams.tool_text import ToolText
from serve_app.tools.toolset import ToolSet

FOLDER = Path(__file__).parents[2] / "golden" / "toolcalls"

STRING: Json = {"type": "string"}
ARGV: Json = {
    "type": "object",
    "properties": {"command": STRING, "args": {"type": "array", "items": STRING}},
    "required": ["command", "args"],
}


def cases(name: str) -> dict[str, Json]:
    """The cases of one file by their ids."""
    lines = (FOLDER / f"{name}.jsonl").read_text(encoding="utf-8").splitlines()
    return {case["id"]: case for case in map(json.loads, lines)}


def tool(name: str, *required: str, **properties: Json) -> Json:
    parameters = {"type": "object", "properties": properties, "required": list(required)}
    return {"type": "function", "function": {"name": name, "parameters": parameters}}


WEATHER = tool(
    "get_weather", "city", city=STRING, unit={"type": "string", "enum": ["celsius", "fahrenheit"]}
)
PING = tool("ping")
NOTE = tool("save_note", "title", "body", title=STRING, body=STRING)
TAGS = tool("tag", "tags", tags={"type": "array", "items": STRING})
ALL_TOOLS = [WEATHER, PING, NOTE, TAGS]


@dataclass(slots=True)
class Told:
    """What came of a turn: all of it, or what was shown before the error."""

    turn: Completion
    error: str | None = None
    held: list[int] = field(default_factory=list[int], compare=False)

    @property
    def content(self) -> str:
        return self.turn.content or ""

    @property
    def calls(self) -> list[tuple[str, Any]]:
        return [(call.name, json.loads(call.arguments)) for call in self.turn.tool_calls]


def step(tools: Iterable[Json], choice: str | Json | None = None, **limits: Any) -> ToolText:
    return ToolText(ToolSet(list(tools)), choice=choice, call_prefix="t", **limits)


def feed(stage: ToolText, events: Iterable[RunEvent]) -> Told:
    """Feed a turn to its end, or to its error."""
    collector = Collector()
    held: list[int] = []
    error = None
    try:
        for event in events:
            for one in stage.feed(event):
                collector.feed(one)
            held.append(stage.held)
        for one in stage.finish():
            collector.feed(one)
    except ToolValidationError as failure:
        error = failure.message
    return Told(collector.result(), error, held)


def say(
    text: str | Iterable[str],
    tools: Iterable[Json] = ALL_TOOLS,
    *,
    choice: str | Json | None = None,
    reason: FinishReason = "stop",
) -> Told:
    """A turn of text, given whole or in pieces."""
    pieces = [text] if isinstance(text, str) else text
    return feed(step(tools, choice), [*map(TextDelta, pieces), Finish(reason)])


def cuts(text: str) -> Iterable[list[str]]:
    """A text whole, character by character, and in two pieces at every place."""
    yield [text] if text else []
    yield list(text)
    for place in range(1, len(text)):
        yield [text[:place], text[place:]]


def reply_events(reply: Json, pieces: Iterable[str]) -> list[RunEvent]:
    """An upstream's whole reply, its content in these pieces."""
    events: list[RunEvent] = []
    if reply.get("reasoning_content"):
        events.append(ReasoningDelta(reply["reasoning_content"]))
    events += map(TextDelta, pieces)
    for index, call in enumerate(cast("list[Json]", reply.get("tool_calls") or [])):
        function = call["function"]
        arguments = function["arguments"]
        text = arguments if isinstance(arguments, str) else json.dumps(arguments)
        events.append(ToolCallDelta(index, call["id"], function["name"]))
        events += [ToolCallDelta(index, arguments=sign) for sign in text]
    return [*events, Finish(reply.get("finish_reason") or "stop")]


def chunk_events(case: Json) -> list[RunEvent]:
    """A case's own chunks."""
    events: list[RunEvent] = []
    for chunk in case["chunks"]:
        if chunk.get("reasoning_content"):
            events.append(ReasoningDelta(chunk["reasoning_content"]))
        if chunk.get("content"):
            events.append(TextDelta(chunk["content"]))
        for call in chunk.get("tool_calls", []):
            said = call["function"]
            events.append(
                ToolCallDelta(call["index"], call.get("id"), said.get("name"), said["arguments"])
            )
    return [*events, Finish(case["provider_finish_reason"])]


def same(wanted: object, got: object) -> bool:
    """Equal with types: true is not 1; `$shell` is any line of these words."""
    if isinstance(wanted, dict):
        fields = cast("Json", wanted)
        if set(fields) == {"$shell"}:
            return isinstance(got, str) and shlex.split(got) == fields["$shell"]
        return (
            isinstance(got, dict)
            and fields.keys() == cast("Json", got).keys()
            and all(same(fields[key], cast("Json", got)[key]) for key in fields)
        )
    if isinstance(wanted, list):
        ours, theirs = cast("list[object]", wanted), cast("list[object]", got)
        return isinstance(got, list) and len(ours) == len(theirs) and all(map(same, ours, theirs))
    if isinstance(wanted, bool) or isinstance(got, bool):
        return wanted is got
    return wanted == got
