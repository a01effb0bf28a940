"""A provider's replica as a source of slots: so many at once, in the order of asking."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable

from serve_app.runs import Slot
from serve_app.upstream.slots import SlotPool


async def let_go_on(steps: int = 1) -> None:
    """Let every task that can go on do so, so many times."""
    for _ in range(steps):
        await asyncio.sleep(0)


async def until(condition: Callable[[], bool]) -> None:
    """Let the loop go on until something is so, which is expected to be soon."""
    async with asyncio.timeout(5):
        while not condition():
            await let_go_on()


async def all_closed(pool: SlotPool, source: Source) -> None:
    """Give the idle slots back, and see that none is left anywhere and nobody is asked."""
    pool.close()
    await until(lambda: source.open_now == 0 and source.queued == 0)
    assert pool.busy == 0


class Opened:
    """One granted slot."""

    def __init__(self, source: Source, number: int) -> None:
        self._source = source
        self._slot = Slot(provider="p", url=f"http://{number}")
        self._ended = asyncio.Event()
        self.closed = False

    @property
    def slot(self) -> Slot:
        return self._slot

    async def wait_ended(self) -> None:
        await self._ended.wait()

    def close(self) -> None:
        if not self.closed:
            self.closed = True
            self._ended.set()
            self._source.returned(self)

    def end(self) -> None:
        """The other side ends it, as a replica does that dies."""
        self._ended.set()


class Source:
    """Grants slots while it has any, and keeps count of everything.

    Attributes:
        asked: Calls of `open`.
        withdrawn: Calls that were cancelled before they had an answer of use.
        granted: Every slot that was granted, in order.
        most: The greatest number of slots that were open at once.
    """

    def __init__(self, free: int) -> None:
        self.free = free
        self.asked = 0
        self.withdrawn = 0
        self.granted: list[Opened] = []
        self.most = 0
        self._queue: deque[asyncio.Future[None]] = deque()

    @property
    def open_now(self) -> int:
        """Slots that were granted and not given back."""
        return sum(not opened.closed for opened in self.granted)

    @property
    def queued(self) -> int:
        """Calls that wait for an answer."""
        return len(self._queue)

    async def open(self) -> Opened:
        self.asked += 1
        ticket: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._queue.append(ticket)
        self._grant()
        try:
            await ticket
        except asyncio.CancelledError:
            self.withdrawn += 1
            if ticket in self._queue:
                self._queue.remove(ticket)
            elif not ticket.cancelled() and ticket.exception() is None:
                self.add(1)
            raise
        opened = Opened(self, len(self.granted))
        self.granted.append(opened)
        self.most = max(self.most, self.open_now)
        return opened

    def add(self, count: int) -> None:
        """Have so many more slots to grant."""
        self.free += count
        self._grant()

    def fail(self, error: Exception) -> None:
        """Answer the call that waits longest with an error."""
        while self._queue:
            ticket = self._queue.popleft()
            if not ticket.done():
                ticket.set_exception(error)
                return

    def returned(self, opened: Opened) -> None:
        """A slot was given back."""
        assert opened in self.granted
        self.add(1)

    def _grant(self) -> None:
        while self.free and self._queue:
            ticket = self._queue.popleft()
            if not ticket.done():
                self.free -= 1
                ticket.set_result(None)
