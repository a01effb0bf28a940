"""Events folded into a whole turn."""

from __future__ import annotations

import pytest

from serve_app.runs import (
    Completion,
    Finish,
    ReasoningDelta,
    RunEvent,
    TextDelta,
    ToolCall,
    ToolCallDelta,
    Usage,
)
from tests.serve_app.streams.feeding import folded


@pytest.mark.parametrize(
    ("events", "turn"),
    [
        pytest.param([], Completion(None, None, [], "stop", None), id="nothing"),
        pytest.param(
            [TextDelta("a"), ReasoningDelta("r"), TextDelta("b"), ReasoningDelta("s")],
            Completion("ab", "rs", [], "stop", None),
            id="texts-apart",
        ),
        pytest.param([TextDelta("")], Completion(None, None, [], "stop", None), id="empty-text"),
        pytest.param([Finish("length")], Completion(None, None, [], "length", None), id="reason"),
        pytest.param(
            [Usage(1, 1, 2), TextDelta("a"), Usage(1, 2, 3)],
            Completion("a", None, [], "stop", Usage(1, 2, 3)),
            id="the-last-counts",
        ),
        pytest.param(
            [
                ToolCallDelta(1, "d", "g", "1"),
                ToolCallDelta(0, "c", "f", "2"),
                ToolCallDelta(1, None, None, "3"),
                Finish("tool_calls"),
            ],
            Completion(
                None, None, [ToolCall("c", "f", "2"), ToolCall("d", "g", "13")], "tool_calls", None
            ),
            id="calls-in-order",
        ),
        pytest.param(
            [ToolCallDelta(0, "c", "f", "1"), ToolCallDelta(0, "other", "g", "2")],
            Completion(None, None, [ToolCall("c", "f", "12")], "stop", None),
            id="the-first-id-and-name",
        ),
    ],
)
def test_a_turn_is_the_sum_of_its_events(events: list[RunEvent], turn: Completion) -> None:
    """Texts joined, calls put together, the last reason and counts."""
    assert folded(events) == turn
