"""Feeds steps in the ways that their laws speak of."""

from __future__ import annotations

import json
from collections.abc import Iterable
from itertools import pairwise
from typing import Any, TypeVar

from serve_app.runs import Completion, Json, RunEvent
from serve_app.streams.chat_decode import ChatDecoder
from serve_app.streams.collect import Collector
from serve_app.streams.sse import SseDecoder
from serve_app.streams.step import Step
from tests.fakes.sse import chunk

_In = TypeVar("_In")
_Out = TypeVar("_Out")


def drain(step: Step[_In, _Out], items: Iterable[_In]) -> list[_Out]:
    """All that a step gives for these items and for their end."""
    out = [one for item in items for one in step.feed(item)]
    return [*out, *step.finish()]


def cut(data: bytes, places: Iterable[int]) -> list[bytes]:
    """Data in pieces, cut at these places; a place twice makes an empty piece."""
    marks = [0, *sorted(min(place, len(data)) for place in places), len(data)]
    return [data[start:end] for start, end in pairwise(marks)]


def single(data: bytes) -> list[bytes]:
    """Data byte by byte."""
    return [data[at : at + 1] for at in range(len(data))]


def sse_data(pieces: Iterable[bytes]) -> list[bytes]:
    """The data of each event in these bytes."""
    return drain(SseDecoder(), pieces)


def events_of(data: Iterable[bytes]) -> list[RunEvent]:
    """The events of a whole chat stream, given by the data of its server-sent events."""
    return drain(ChatDecoder(), data)


def folded(events: Iterable[RunEvent]) -> Completion:
    """The turn that these events make."""
    collector = Collector()
    for event in events:
        collector.feed(event)
    return collector.result()


def data(*items: Json | bytes) -> list[bytes]:
    """Chunks as the data of their events."""
    return [item if isinstance(item, bytes) else json.dumps(item).encode() for item in items]


def decoded(*items: Json | bytes) -> list[RunEvent]:
    """The events of a stream of these chunks."""
    return events_of(data(*items))


def called(*pieces: object) -> Json:
    """A chunk with these pieces of tool calls."""
    return chunk(delta={"tool_calls": list(pieces)})


def piece(arguments: Any = None, *, name: str | None = None, **marks: Any) -> Json:
    """One piece of a tool call: an index and an id only where they are given."""
    said = {"name": name, "arguments": arguments}
    return {"function": {key: value for key, value in said.items() if value is not None}} | marks
