"""Answers that hold only reasoning: they get a content (clauses REASON, THINK-5).

An answer whose content is only white space counts as one without content: nobody could read it.
So white space that begins the content is held back until a word follows, over reasoning too; of
all that is held here it alone changes its place among the events.
"""

from __future__ import annotations

from io import StringIO
from typing import Final

from serve_app.runs import (
    Finish,
    FinishReason,
    ReasoningDelta,
    RunEvent,
    TextDelta,
    ToolCallDelta,
    Usage,
)

#: Most characters of reasoning that are kept for the case that no content follows.
MAX_REASONING: Final = 8 * 2**20
#: Most white space that is held back; more of it is content.
MAX_SPACE: Final = 4096

NOTICE: Final = "[IOP] The model gave reasoning but no final answer (finish_reason: {reason})."
NOTICE_CUT: Final = (
    "[IOP] The model gave reasoning but no final answer (finish_reason: {reason}), and only the "
    "first {kept} characters of the reasoning are repeated here."
)
NOTICE_HIDDEN: Final = (
    "[IOP] The model gave no final answer and its reasoning was hidden (finish_reason: {reason})."
)


class ReasoningOnly:
    """Shows or hides reasoning, and never lets it stand alone. A `Step[RunEvent, RunEvent]`.

    Args:
        include_reasoning: What the caller said; only `False` hides.
        max_reasoning: Most characters of reasoning that the content repeats.
    """

    def __init__(
        self, *, include_reasoning: bool | None = None, max_reasoning: int = MAX_REASONING
    ) -> None:
        self._hidden = include_reasoning is False
        self._max = max_reasoning
        self._kept = StringIO()
        self._cut = False
        self._reasoned = False  # whether there was reasoning that can be read
        self._answered = False  # whether there was content or a tool call
        self._space = ""
        self._spilled = False  # whether there was too much white space to be held

    def feed(self, event: RunEvent, /) -> list[RunEvent]:
        """Take one event."""
        match event:
            case TextDelta(text):
                return [event] if self._answered else self._text(text)
            case ReasoningDelta(text):
                return self._reasoning(event, text)
            case Usage():  # comes in the middle of a text with some servers, and has no order
                return [event]
            case ToolCallDelta():
                return [*self._answer(), event]
            case Finish(reason):
                return [*self._end(reason), event]

    def finish(self) -> list[RunEvent]:
        """Give what was held back; without a `Finish` nobody knows that this was all."""
        space, self._space = self._space, ""
        return [TextDelta(space)] if space else []

    def _text(self, text: str) -> list[RunEvent]:
        """Take content before anything of it could be read."""
        text = self._space + text
        if text and not text.isspace():
            self._space = ""
            return [*self._answer(), TextDelta(text)]
        self._space = text
        self._spilled = self._spilled or len(text) > MAX_SPACE
        return self.finish() if self._spilled else []

    def _reasoning(self, event: RunEvent, text: str) -> list[RunEvent]:
        """Take reasoning; keep it for as long as it may have to stand for an answer."""
        if not self._answered:
            self._reasoned = self._reasoned or bool(text.strip())
            self._keep(text)
        return [event] if text and not self._hidden else []

    def _keep(self, text: str) -> None:
        if self._hidden:
            return
        room = self._max - self._kept.tell()
        self._cut = self._cut or len(text) > room
        self._kept.write(text[:room])

    def _answer(self) -> list[RunEvent]:
        """There is an answer: what was kept for the other case is not needed."""
        self._answered = True
        self._kept = StringIO()
        return self.finish()

    def _end(self, reason: FinishReason) -> list[RunEvent]:
        """What has to come before the finish."""
        if self._answered or not self._reasoned:
            return self.finish()
        self._answered = True  # once is enough
        self._space = ""
        return [TextDelta(self._stand_in(reason))]

    def _stand_in(self, reason: FinishReason) -> str:
        """The content of an answer that has none."""
        if self._hidden:
            return NOTICE_HIDDEN.format(reason=reason)
        text = self._kept.getvalue()
        if self._cut:
            return f"{text}\n\n{NOTICE_CUT.format(reason=reason, kept=len(text))}"
        # A reason that speaks of tool calls where none came says no more than `stop`.
        if reason in {"stop", "tool_calls"}:
            return text
        return f"{text}\n\n{NOTICE.format(reason=reason)}"
