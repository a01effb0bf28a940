"""Events folded into one whole answer: how a caller that does not stream is served."""

from __future__ import annotations

from serve_app.runs import (
    Completion,
    Finish,
    FinishReason,
    ReasoningDelta,
    RunEvent,
    TextDelta,
    ToolCall,
    ToolCallDelta,
    Usage,
)


class Collector:
    """Takes a turn's events; `result` is the turn."""

    def __init__(self) -> None:
        self._content: list[str] = []
        self._reasoning: list[str] = []
        self._calls: dict[int, ToolCall] = {}
        self._reason: FinishReason = "stop"
        self._usage: Usage | None = None

    def feed(self, event: RunEvent, /) -> None:
        """Take one event."""
        match event:
            case TextDelta(text):
                self._content.append(text)
            case ReasoningDelta(text):
                self._reasoning.append(text)
            case ToolCallDelta():
                self._call(event)
            case Usage():
                self._usage = event
            case Finish(reason):
                self._reason = reason

    def result(self) -> Completion:
        """The whole turn. `content` is `None` where there was no text."""
        return Completion(
            content="".join(self._content) or None,
            reasoning="".join(self._reasoning) or None,
            tool_calls=[self._calls[index] for index in sorted(self._calls)],
            finish_reason=self._reason,
            usage=self._usage,
        )

    def _call(self, piece: ToolCallDelta) -> None:
        """Add a piece to its tool call.

        Once a call has its name a stream has sent it, with whatever id was known by then.
        """
        call = self._calls.setdefault(piece.index, ToolCall(id="", name="", arguments=""))
        if not call.name:
            call.id = call.id or piece.id or ""
            call.name = piece.name or ""
        call.arguments += piece.arguments
