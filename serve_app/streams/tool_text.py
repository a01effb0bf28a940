"""Tool calls of a turn: those written as text become calls, native ones are put in order.

Only for turns whose request has tools. Calls found in text come at the end, right before the
finish: a block that is broken later then leaves no half of a batch at work, and native calls that
come after the text win.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, cast

from serve_app.errors import ToolValidationError
from serve_app.runs import (
    Finish,
    FinishReason,
    Json,
    ReasoningDelta,
    RunEvent,
    TextDelta,
    ToolCallDelta,
)
from serve_app.streams.native_calls import NativeCalls
from serve_app.tools.calls import BlockError, Call, shown
from serve_app.tools.scanner import Scanner
from serve_app.tools.sentinel_names import KNOWN_SENTINELS
from serve_app.tools.toolset import ToolSet

_REASON_CHARS: Final = 200


class ToolText:
    """A `Step[RunEvent, RunEvent]` for a turn with tools.

    Args:
        toolset: The caller's tools.
        choice: `tool_choice` of the request. With `"none"` text stays as it is.
        call_prefix: What the ids of calls found in text have in common.
        sentinels: Marks that count as white space between the tags of a block.
        max_block_chars: Longest block.
    """

    def __init__(
        self,
        toolset: ToolSet,
        *,
        choice: str | Json | None,
        call_prefix: str,
        sentinels: Sequence[str] = KNOWN_SENTINELS,
        max_block_chars: int = 2**20,
    ) -> None:
        self._tools = toolset
        self._choice = choice
        self._call_prefix = call_prefix
        self._sentinels = sentinels
        self._max_block_chars = max_block_chars
        self._scanner = self._new_scanner()
        self._native: NativeCalls | None = None
        self._has_text = False
        self._reasoning: list[str] = []
        self._finished = False

    @property
    def held(self) -> int:
        """Characters of text that wait for what follows them."""
        return self._scanner.held

    def feed(self, event: RunEvent, /) -> list[RunEvent]:
        """Take one event.

        Raises:
            ToolValidationError: A call cannot be made, or is not the one that was asked for.
        """
        if isinstance(event, TextDelta):
            return self._text(event)
        if isinstance(event, ReasoningDelta):
            if not self._has_text:
                self._reasoning.append(event.text)
            return [event]
        if isinstance(event, ToolCallDelta):
            return self._native_call(event)
        return self._end(event.reason) if isinstance(event, Finish) else [event]

    def finish(self) -> list[RunEvent]:
        """Give what a stream without a finish reason has left.

        Raises:
            ToolValidationError: It broke off inside a block.
        """
        return [] if self._finished else self._end(None)

    def _text(self, event: TextDelta) -> list[RunEvent]:
        """Text as it may be shown."""
        text = event.text
        scanner = self._scanner
        if self._choice == "none":
            self._has_text = True
            return [event]
        plain = "<" not in text and "{" not in text and "[" not in text
        if plain and scanner.idle and self._has_text:
            return [event]
        if scanner.failure is not None:
            raise _failed(scanner.failure)
        shown_text = scanner.feed(text)
        if not shown_text:
            if scanner.failure is not None:
                raise _failed(scanner.failure)
            return []
        # A block that is broken is told with the next event, for this text goes first.
        if not self._has_text and not shown_text.isspace():
            self._has_text = True
            self._reasoning.clear()
        return [TextDelta(shown_text)]

    def _native_call(self, piece: ToolCallDelta) -> list[RunEvent]:
        """A piece of a native call. From the first one on, text is only cleaned of blocks."""
        if self._choice == "none":
            message = "The model called a tool, but 'tool_choice' is 'none'."
            raise ToolValidationError(message)
        if self._scanner.failure is not None:
            raise _failed(self._scanner.failure)
        if self._native is None:
            self._native = NativeCalls(self._tools, max_chars=self._max_block_chars)
            self._scanner.only_strips = True
        return [*self._native.feed(piece)]

    def _end(self, reason: FinishReason | None) -> list[RunEvent]:
        """The calls, and why the turn ended."""
        self._finished = True
        scanner = self._scanner
        rest = scanner.end() if self._choice != "none" else ""
        if scanner.failure is not None:
            raise _failed(scanner.failure, reason)
        if rest:
            self._has_text = self._has_text or not rest.isspace()
        out: list[RunEvent] = [TextDelta(rest)] if rest else []
        names = [call.name for call in scanner.calls]
        if self._native is not None:
            out += self._native.finish()
            names = self._native.names
        else:
            out += self._calls(scanner.calls)
        if reason != "content_filter":
            self._check_choice(names)
        if not names and not self._has_text:
            self._check_reasoning()
        if reason is not None:
            out.append(Finish(self._reason(reason, names=names)))
        return out

    def _calls(self, calls: Sequence[Call]) -> list[ToolCallDelta]:
        """The calls found in text, each in one piece."""
        return [
            ToolCallDelta(
                index=number,
                id=f"call_{self._call_prefix}_{number}",
                name=call.name,
                arguments=call.arguments,
            )
            for number, call in enumerate(calls)
        ]

    def _reason(self, reason: FinishReason, *, names: Sequence[str]) -> FinishReason:
        """The finish reason that agrees with the calls.

        A call in text is whole whatever was cut behind it; a native one may be cut itself.
        """
        if not names:
            return "stop" if reason == "tool_calls" else reason
        if reason == "stop" or (reason == "length" and self._native is None):
            return "tool_calls"
        return reason

    def _check_choice(self, names: Sequence[str]) -> None:
        """The caller's choice is kept.

        Raises:
            ToolValidationError: It is not.
        """
        if isinstance(self._choice, dict):
            wanted = cast("str", cast("Json", self._choice["function"])["name"])
            if any(name != wanted for name in names):
                other = next(name for name in names if name != wanted)
                message = f"The model called the tool {shown(other)}, but not only {shown(wanted)}"
                raise ToolValidationError(f"{message}, as 'tool_choice' demands.")
            if not names:
                message = f"The model did not call the tool {shown(wanted)}"
                raise ToolValidationError(f"{message}, as 'tool_choice' demands.")
        elif self._choice == "required" and not names:
            raise ToolValidationError("The model called no tool, as 'tool_choice' demands.")

    def _check_reasoning(self) -> None:
        """A call in the reasoning is none; nor may it be shown in place of a missing answer.

        Raises:
            ToolValidationError: There is one, and nothing else.
        """
        if self._choice == "none" or not self._reasoning:
            return
        scanner = self._new_scanner()
        for piece in self._reasoning:
            scanner.feed(piece)
        scanner.end()
        if scanner.calls or scanner.failure is not None:
            message = "The model wrote a tool call into its reasoning, and no answer."
            raise ToolValidationError(message)

    def _new_scanner(self) -> Scanner:
        return Scanner(
            self._tools, sentinels=self._sentinels, max_block_chars=self._max_block_chars
        )


def _failed(failure: BlockError, reason: FinishReason | None = None) -> ToolValidationError:
    """The error for a block that is broken."""
    text = failure.reason
    if len(text) > _REASON_CHARS:
        text = text[:_REASON_CHARS] + "…"
    if failure.cut and reason == "length":
        text += ", for the answer was cut at its length limit"
    return ToolValidationError(f"The model wrote a tool call that cannot be made: {text}.")
