"""Text of an answer, told apart into what may be shown and the calls that are written in it.

Text is shown as soon as it cannot be the beginning of a block. A block is held until its end, for
a call has to be valid before any of it is used, and no part of a block may be shown.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from serve_app.tools.blocks import BlockReader
from serve_app.tools.calls import BlockError, Call
from serve_app.tools.dialects import BRACES_OPEN, CLOSERS, MAX_WHITE_CHARS, OPENER, OPENERS
from serve_app.tools.sentinel_names import KNOWN_SENTINELS
from serve_app.tools.tape import Reading, Tape
from serve_app.tools.toolset import ToolSet

#: Text is read in pieces of this size, so that a long one is not copied for every block in it.
_PIECE_CHARS: Final = 4096
_LONGEST_OPENER: Final = max(map(len, OPENERS))


class Scanner:
    """Reads one channel of one answer.

    Args:
        tools: The tools that may be called.
        sentinels: Marks that count as white space between the tags of a block.
        max_block_chars: Longest block.
    """

    def __init__(
        self,
        tools: ToolSet,
        *,
        sentinels: Sequence[str] = KNOWN_SENTINELS,
        max_block_chars: int = 2**20,
    ) -> None:
        self.calls: list[Call] = []
        #: What is wrong with a block; nothing is read behind it.
        self.failure: BlockError | None = None
        #: True where the calls come by another way, so that blocks are only taken out.
        self.only_strips = False
        #: True while nothing is held and no block is open.
        self.idle = False
        self._max = max_block_chars
        self._tape = Tape(sentinels, self._check_waiting)
        self._reader = BlockReader(self._tape, tools)
        self._block_start = -1
        self._shown: list[str] = []
        #: White space that is shown only if text follows; `None` in the middle of text.
        self._white: str | None = ""
        self._in_text = False
        self._run = self._read()
        next(self._run)

    @property
    def held(self) -> int:
        """Characters of text that wait for what follows them."""
        return self._tape.held + len(self._white or "")

    @property
    def in_block(self) -> bool:
        """True while a block, or what may become one, is open."""
        return self._block_start >= 0

    def feed(self, text: str) -> str:
        """Take text; give what may be shown by now. `failure` says if a block was broken."""
        for start in range(0, len(text), _PIECE_CHARS):
            self._tape.add(text[start : start + _PIECE_CHARS])
            self._go_on()
        self.idle = (
            self._in_text
            and self._white is None
            and self._tape.at == len(self._tape.text)
            and self.failure is None
        )
        return self._given()

    def end(self) -> str:
        """The text is over; give what was held."""
        self._tape.closed = True
        self._go_on()
        if self._white and not self.calls and not self.only_strips and self.failure is None:
            self._shown.append(self._white)
        self._white = None
        return self._given()

    def _given(self) -> str:
        text = "".join(self._shown)
        self._shown.clear()
        return text

    def _go_on(self) -> None:
        """Let the reading go on with what there is now."""
        if self.failure is not None:
            return
        try:
            next(self._run)
        except StopIteration:
            pass
        except BlockError as failure:
            self.failure = failure

    def _read(self) -> Reading[None]:
        """Text and blocks, up to the end."""
        tape = self._tape
        while True:
            found = OPENER.search(tape.text, tape.at)
            self._show(found.start() if found else self._certain())
            if found is not None:
                yield from self._open(found[0])
                continue
            self._in_text = True
            goes_on = yield from tape.more()
            self._in_text = False
            if not goes_on:
                self._show(len(tape.text))
                return

    def _open(self, opener: str) -> Reading[None]:
        """What an opening marker begins: a block, or more text."""
        tape = self._tape
        self._block_start = tape.place
        try:
            calls = yield from self._reader.read(opener)
            if calls is not None:
                self._check_size(tape.place)
        except BlockError as error:
            if not self.only_strips:
                raise
            tape.kept = -1
            self._block_start = -1
            yield from self._discard(error.closer)
            return
        self._block_start = -1
        if calls is None:
            tape.at = tape.kept
            tape.kept = -1
            # Braces may begin again at the second one.
            self._show(tape.at + (1 if opener == BRACES_OPEN else len(opener)))
            return
        tape.kept = -1
        self.calls += calls
        yield from self._after_block()

    def _after_block(self) -> Reading[None]:
        """Closing tags and sentinels that follow a block are part of it."""
        tape = self._tape
        self._white = ""
        while True:
            first = yield from tape.peek(1)
            if first.isspace():
                self._show(tape.at + 1)
                continue
            mark = yield from tape.noise_here()
            if mark is None:
                mark = yield from tape.next_of(CLOSERS)
                if mark is None:
                    return
                self._white = ""
            tape.at += len(mark)

    def _discard(self, closer: str) -> Reading[None]:
        """Take out the rest of a broken block."""
        tape = self._tape
        while closer:
            end = tape.text.find(closer, tape.at)
            if end >= 0:
                tape.at = end + len(closer)
                break
            tape.at = max(tape.at, len(tape.text) - len(closer) + 1)
            if not (yield from tape.more()):
                tape.at = len(tape.text)
                return
        yield from self._after_block()

    def _certain(self) -> int:
        """Where that end of the text begins which may be the beginning of an opener."""
        text = self._tape.text
        for start in range(max(self._tape.at, len(text) - _LONGEST_OPENER + 1), len(text)):
            if any(opener.startswith(text[start:]) for opener in OPENERS):
                return start
        return len(text)

    def _show(self, end: int) -> None:
        """Show text up to a position; white space where no text stands before it waits."""
        tape = self._tape
        text = tape.text[tape.at : end]
        tape.at = end
        if self._white is None or not text:
            if text:
                self._shown.append(text)
            return
        self._white += text
        if len(self._white) > MAX_WHITE_CHARS or not text.isspace():
            self._shown.append(self._white)
            self._white = None

    def _check_waiting(self) -> None:
        """Judge the length of a block that needs more text."""
        if self._block_start >= 0:
            self._check_size(self._tape.dropped + len(self._tape.text))

    def _check_size(self, end: int) -> None:
        """A block may not grow without an end.

        Raises:
            BlockError: It is too long.
        """
        if end - self._block_start > self._max:
            raise BlockError(f"the block is longer than {self._max} characters")
