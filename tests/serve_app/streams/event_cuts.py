"""Events cut into smaller ones in every way that must not matter, and put together again."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import pairwise

from hypothesis import strategies as st

from serve_app.runs import (
    Finish,
    ReasoningDelta,
    RunEvent,
    TextDelta,
    ToolCallDelta,
    Usage,
)
from serve_app.streams.step import Step
from tests.serve_app.streams.feeding import drain

CALL = ToolCallDelta(index=0, id="c", name="f", arguments="{}")
USAGE = Usage(prompt_tokens=1, completion_tokens=2, total_tokens=3)
STOP = Finish("stop")

#: Makes the step under test, a new one for every stream.
Maker = Callable[[], Step[RunEvent, RunEvent]]


def joined(events: Iterable[RunEvent]) -> list[RunEvent]:
    """The same stream in the fewest events: neighbours of one kind are one, empty ones none."""
    out: list[RunEvent] = []
    for event in events:
        if _empty([event]):
            continue
        last = out[-1] if out else None
        if isinstance(event, TextDelta) and isinstance(last, TextDelta):
            out[-1] = TextDelta(last.text + event.text)
        elif isinstance(event, ReasoningDelta) and isinstance(last, ReasoningDelta):
            out[-1] = ReasoningDelta(last.text + event.text)
        else:
            out.append(event)
    return out


def run(step: Step[RunEvent, RunEvent], events: Iterable[RunEvent]) -> list[RunEvent]:
    """What a step gives for a whole stream, in the fewest events; it makes no empty delta."""
    given = list(events)
    out = drain(step, given)
    assert _empty(out) <= _empty(given)
    assert step.finish() == []
    return joined(out)


def content(events: Iterable[RunEvent]) -> str:
    """All content of a stream."""
    return "".join(event.text for event in events if isinstance(event, TextDelta))


def reasoning(events: Iterable[RunEvent]) -> str:
    """All reasoning of a stream."""
    return "".join(event.text for event in events if isinstance(event, ReasoningDelta))


def single(events: Iterable[RunEvent]) -> list[RunEvent]:
    """The stream with one character an event."""
    return [piece for event in events for piece in _pieces(event, range(1, _size(event)))]


def every_cut(events: Sequence[RunEvent]) -> Iterator[list[RunEvent]]:
    """The stream with one cut, at each place there is."""
    for number, event in enumerate(events):
        for place in range(1, _size(event)):
            yield [*events[:number], *_pieces(event, [place]), *events[number + 1 :]]


@st.composite
def cut(draw: st.DrawFn, events: Sequence[RunEvent]) -> list[RunEvent]:
    """The stream, cut somewhere."""
    out: list[RunEvent] = []
    for event in events:
        places = st.sets(st.integers(1, max(1, _size(event) - 1)), max_size=8)
        out += _pieces(event, sorted(draw(places)) if _size(event) > 1 else [])
    return out


def obey_the_cuts(make: Maker, events: Sequence[RunEvent]) -> list[RunEvent]:
    """The step's answer to a stream, which is the same for every single cut and for all of them."""
    whole = run(make(), events)
    assert run(make(), single(events)) == whole
    for pieces in every_cut(events):
        assert run(make(), pieces) == whole
    return whole


def held_at_most(make: Maker, events: Sequence[RunEvent]) -> int:
    """Most characters that had gone into a step and not come out; what is cut out counts too."""
    step, most, balance = make(), 0, 0
    for event in single(events):
        balance += _size(event) - sum(_size(out) for out in step.feed(event))
        most = max(most, balance)
    return most


def _empty(events: Iterable[RunEvent]) -> int:
    return sum(isinstance(event, TextDelta | ReasoningDelta) and not event.text for event in events)


def _size(event: RunEvent) -> int:
    return len(event.text) if isinstance(event, TextDelta | ReasoningDelta) else 0


def _pieces(event: RunEvent, places: Iterable[int]) -> list[RunEvent]:
    if not isinstance(event, TextDelta | ReasoningDelta):
        return [event]
    marks = [0, *places, len(event.text)]
    kind = type(event)
    return [kind(event.text[start:end]) for start, end in pairwise(marks)]
