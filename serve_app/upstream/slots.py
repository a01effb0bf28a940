"""Slots on one provider, kept for the next request as an HTTP client keeps connections.

A slot is one held-open stream from a provider's replica (`SlotSource`). Asking for one is a Ray
call; steady traffic reuses idle ones and pays for none.

Rules of this file:
1. A slot is idle for at most `idle_s`, so that scale-to-zero sees the end of traffic.
2. A slot lives for at most `max_age_s` (jittered), so that new replicas get their share.
3. An open stream is watched while the slot is idle too: a dead replica's slots leave at once.
4. Whoever waits longest gets the next slot, wherever it comes from.
5. A call for a slot that was not needed in the end serves the next who waits, instead of a new
   one; once a slot lies idle, nobody waits, and the calls left over are withdrawn.
"""

from __future__ import annotations

import asyncio
import random
from collections import deque
from typing import Protocol

from serve_app.errors import OverloadedError
from serve_app.runs import Slot
from serve_app.upstream.background import Background


class OpenSlot(Protocol):
    """A slot while its stream is open."""

    @property
    def slot(self) -> Slot:
        """What was granted."""
        ...

    async def wait_ended(self) -> None:
        """Return when the other side has ended the stream, for whatever reason."""
        ...

    def close(self) -> None:
        """Give the slot back."""
        ...


class SlotSource(Protocol):
    """Where slots come from."""

    async def open(self) -> OpenSlot:
        """Ask for a slot and wait until it is granted. Cancelled, it leaves no slot open.

        Raises:
            OverloadedError: The queue is full.
            UpstreamUnavailableError: The provider cannot grant any.
        """
        ...


class Lease:
    """A slot in the hands of one request, or idle in the pool."""

    __slots__ = ("born", "ended", "idle_timer", "lifetime_s", "opened")

    def __init__(self, opened: OpenSlot, *, born: float, lifetime_s: float) -> None:
        self.opened = opened
        self.born = born
        self.lifetime_s = lifetime_s
        self.ended = False
        self.idle_timer: asyncio.TimerHandle | None = None

    @property
    def slot(self) -> Slot:
        """What was granted."""
        return self.opened.slot


class SlotPool:
    """The slots that this ingress replica holds on one provider.

    Args:
        provider: The provider's name, for messages.
        source: Where slots come from.
        background: Owner of the tasks that wait for and watch slots.
        idle_s: How long an idle slot is kept.
        max_age_s: Greatest age at which a slot is still reused.
    """

    def __init__(
        self,
        provider: str,
        source: SlotSource,
        background: Background,
        *,
        idle_s: float = 1.0,
        max_age_s: float = 5.0,
    ) -> None:
        self._provider = provider
        self._source = source
        self._background = background
        self._idle_s = idle_s
        self._max_age_s = max_age_s
        self._idle: list[Lease] = []
        self._waiters: deque[asyncio.Future[Lease]] = deque()
        self._asking: set[asyncio.Task[None]] = set()
        self.busy = 0

    async def lease(self, *, timeout_s: float) -> Lease:
        """Take a slot, an idle one if there is any.

        Raises:
            OverloadedError: None became free in time, or the queue is full.
            GatewayError: The provider cannot grant any.
        """
        while self._idle:
            lease = self._idle.pop()
            if _too_old(lease):
                self._drop(lease)
                continue
            _stop_timer(lease)
            self.busy += 1
            return lease
        waiter: asyncio.Future[Lease] = asyncio.get_running_loop().create_future()
        self._waiters.append(waiter)
        self._ask()
        try:
            async with asyncio.timeout(timeout_s):
                return await waiter
        except TimeoutError:
            self._forget(waiter)
            message = (
                f"The provider '{self._provider}' had no free slot for {timeout_s:g} s. "
                "Try again later."
            )
            raise OverloadedError(message, retry_after_s=5, provider=self._provider) from None
        except asyncio.CancelledError:
            self._forget(waiter)
            raise

    def release(self, lease: Lease, *, reuse: bool = True) -> None:
        """Give a slot back: to the next who waits, to the idle ones, or to its replica."""
        self.busy -= 1
        if lease.ended or not reuse or _too_old(lease):
            self._drop(lease)
            self._ask()
        else:
            self._offer(lease)

    def close(self) -> None:
        """Give every idle slot back."""
        while self._idle:
            self._drop(self._idle.pop())

    def _ask(self) -> None:
        """Ask the source for one more slot, where more are waited for than have been asked for."""
        if len(self._asking) >= len(self._waiters):
            return
        task = self._background.start(self._open(), name=f"slot of {self._provider}")
        self._asking.add(task)
        task.add_done_callback(self._asking.discard)

    async def _open(self) -> None:
        """Wait for one slot, hand it over, and watch it until it ends."""
        try:
            opened = await self._source.open()
        except Exception as error:  # noqa: BLE001 - the waiter has to hear of any failure
            self._answered()
            self._fail_next(error)
            return
        self._answered()
        loop = asyncio.get_running_loop()
        lifetime_s = self._max_age_s * random.uniform(0.8, 1.2)  # noqa: S311 - only jitter
        lease = Lease(opened, born=loop.time(), lifetime_s=lifetime_s)
        try:
            self._offer(lease)
            await opened.wait_ended()
        finally:
            lease.ended = True
            if lease in self._idle:
                self._idle.remove(lease)
            _stop_timer(lease)
            opened.close()

    def _answered(self) -> None:
        """The call that this task made is answered: it is no longer one to wait for."""
        current = asyncio.current_task()
        if current is not None:
            self._asking.discard(current)

    def _withdraw(self) -> None:
        """End the calls for slots that nobody waits for any more."""
        while len(self._asking) > len(self._waiters):
            self._asking.pop().cancel()

    def _offer(self, lease: Lease) -> None:
        """Give a slot to the next who waits, or keep it for a while."""
        while self._waiters:
            waiter = self._waiters.popleft()
            if not waiter.done():
                self.busy += 1
                waiter.set_result(lease)
                return
        loop = asyncio.get_running_loop()
        lease.idle_timer = loop.call_later(self._idle_s, self._expire, lease)
        self._idle.append(lease)
        self._withdraw()

    def _expire(self, lease: Lease) -> None:
        if lease in self._idle:
            self._idle.remove(lease)
        self._drop(lease)

    def _drop(self, lease: Lease) -> None:
        """Close a slot's stream; its watching task sees the end of it."""
        _stop_timer(lease)
        lease.ended = True
        lease.opened.close()

    def _fail_next(self, error: Exception) -> None:
        """Tell one who waits that there is no slot.

        A full queue is the fault of who came last: those before keep their places.
        """
        last = isinstance(error, OverloadedError)
        while self._waiters:
            waiter = self._waiters.pop() if last else self._waiters.popleft()
            if not waiter.done():
                waiter.set_exception(error)
                return

    def _forget(self, waiter: asyncio.Future[Lease]) -> None:
        """A waiter went away: hand on what it was just given, or ask for one slot less."""
        if waiter in self._waiters:
            self._waiters.remove(waiter)
        elif waiter.done() and not waiter.cancelled() and waiter.exception() is None:
            self.release(waiter.result())
            return
        self._withdraw()


def _too_old(lease: Lease) -> bool:
    """True where a slot has been held for so long that another replica may have its turn."""
    return asyncio.get_running_loop().time() - lease.born > lease.lifetime_s


def _stop_timer(lease: Lease) -> None:
    if lease.idle_timer is not None:
        lease.idle_timer.cancel()
        lease.idle_timer = None
