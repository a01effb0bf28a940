"""A provider's replicas as the ingress sees them: a source of slots, without Ray."""

from __future__ import annotations

import asyncio

from serve_app.runs import Slot


class FakeSlot:
    """A granted slot; it lasts until the ingress or the source ends it."""

    def __init__(self, slot: Slot, source: FakeSlots) -> None:
        self._slot = slot
        self._source = source
        self._ended = asyncio.Event()

    @property
    def slot(self) -> Slot:
        return self._slot

    async def wait_ended(self) -> None:
        await self._ended.wait()

    def close(self) -> None:
        if not self._ended.is_set():
            self._ended.set()
            self._source.take_back(self)


class FakeSlots:
    """Grants at most `count` slots at once, all to one upstream. A `SlotSource`.

    Attributes:
        failure: Raised to whoever asks for a slot, while it is set.
        asked: How often a slot was asked for.
        held: The slots that are granted now.
    """

    def __init__(self, slot: Slot, *, count: int = 64) -> None:
        self.failure: Exception | None = None
        self.asked = 0
        self.held: set[FakeSlot] = set()
        self._slot = slot
        self._count = count
        self._changed = asyncio.Event()

    @property
    def count(self) -> int:
        """Slots in all; raising it lets those in who wait."""
        return self._count

    @count.setter
    def count(self, count: int) -> None:
        self._count = count
        self._wake()

    async def open(self) -> FakeSlot:
        self.asked += 1
        while self.failure is None and len(self.held) >= self._count:
            await self._changed.wait()
        if self.failure is not None:
            raise self.failure
        granted = FakeSlot(self._slot, self)
        self.held.add(granted)
        return granted

    def take_back(self, granted: FakeSlot) -> None:
        """Called by a slot that was closed."""
        self.held.discard(granted)
        self._wake()

    def lose_all(self) -> None:
        """End every granted slot, as the death of a replica does."""
        for granted in list(self.held):
            granted.close()

    def _wake(self) -> None:
        changed, self._changed = self._changed, asyncio.Event()
        changed.set()
