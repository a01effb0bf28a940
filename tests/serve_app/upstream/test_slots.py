"""The pool of slots: reuse, age and order."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator

import pytest

from serve_app.upstream.background import Background
from serve_app.upstream.slots import Lease, SlotPool
from tests.serve_app.upstream.slot_source import Source, all_closed, let_go_on, until

IDLE_S = 0.05
FOREVER_S = 60.0


@pytest.fixture
async def background() -> AsyncGenerator[Background]:
    owner = Background()
    yield owner
    await owner.close()


def pool_of(
    source: Source,
    background: Background,
    *,
    idle_s: float = FOREVER_S,
    max_age_s: float = FOREVER_S,
) -> SlotPool:
    return SlotPool("p", source, background, idle_s=idle_s, max_age_s=max_age_s)


async def waiting(
    group: asyncio.TaskGroup, pool: SlotPool, source: Source, count: int = 1
) -> list[asyncio.Task[Lease]]:
    """So many who wait for a slot, in this order, each in the queue before the next."""
    tasks: list[asyncio.Task[Lease]] = []
    for _ in range(count):
        tasks.append(group.create_task(pool.lease(timeout_s=FOREVER_S)))
        await let_go_on()
    await until(lambda: source.queued > 0)
    return tasks


# Reuse


async def test_an_idle_slot_is_used_again(background: Background) -> None:
    """The second request pays for no call."""
    source = Source(1)
    pool = pool_of(source, background)
    slots: list[str] = []
    for _ in range(5):
        lease = await pool.lease(timeout_s=FOREVER_S)
        assert pool.busy == 1
        slots.append(lease.slot.url)
        pool.release(lease)
    assert (slots, source.asked, pool.busy) == (["http://0"] * 5, 1, 0)
    await all_closed(pool, source)


async def test_an_idle_slot_is_given_back_in_time(background: Background) -> None:
    """After `idle_s` it is closed, and the next request asks anew."""
    source = Source(1)
    pool = pool_of(source, background, idle_s=IDLE_S)
    pool.release(await pool.lease(timeout_s=FOREVER_S))
    assert source.open_now == 1
    await until(lambda: source.open_now == 0)
    lease = await pool.lease(timeout_s=FOREVER_S)
    assert (lease.slot.url, source.asked) == ("http://1", 2)
    pool.release(lease)
    await all_closed(pool, source)


async def test_a_slot_at_work_is_not_idle(background: Background) -> None:
    """The idle time begins when it is given back, each time anew."""
    source = Source(2)
    pool = pool_of(source, background, idle_s=IDLE_S)
    busy, other = [await pool.lease(timeout_s=FOREVER_S) for _ in range(2)]
    pool.release(other)
    await until(lambda: source.open_now == 1)
    assert not source.granted[0].closed
    pool.release(busy)
    assert await pool.lease(timeout_s=FOREVER_S) is busy
    pool.release(busy)
    await all_closed(pool, source)


@pytest.mark.parametrize("when", ["at-work", "idle"])
async def test_a_slot_that_is_too_old_is_not_used_again(background: Background, when: str) -> None:
    """New replicas get their share: neither at its return nor out of the pool."""
    source = Source(2)
    pool = pool_of(source, background, max_age_s=100.0)
    lease = await pool.lease(timeout_s=FOREVER_S)
    if when == "idle":
        pool.release(lease)
    lease.born -= 121
    if when == "at-work":
        pool.release(lease)
        assert source.granted[0].closed
    following = await pool.lease(timeout_s=FOREVER_S)
    assert (following.slot.url, source.granted[0].closed) == ("http://1", True)
    pool.release(following)
    await all_closed(pool, source)


async def test_a_slot_of_bad_repute_is_not_used_again(background: Background) -> None:
    """`reuse=False` gives it back at once, and whoever waits gets another."""
    source = Source(1)
    pool = pool_of(source, background)
    lease = await pool.lease(timeout_s=FOREVER_S)
    async with asyncio.TaskGroup() as group:
        (waiter,) = await waiting(group, pool, source)
        pool.release(lease, reuse=False)
    assert waiter.result().slot.url == "http://1"
    pool.release(waiter.result())
    await all_closed(pool, source)


# Order


async def test_a_returned_slot_goes_to_who_waits_longest(background: Background) -> None:
    """Handed over without a call, one after the other, in the order of coming."""
    source = Source(1)
    pool = pool_of(source, background)
    lease = await pool.lease(timeout_s=FOREVER_S)
    async with asyncio.TaskGroup() as group:
        waiters = await waiting(group, pool, source, 3)
        for number, waiter in enumerate(waiters):
            pool.release(lease)
            lease = await waiter
            assert [one.done() for one in waiters] == [at <= number for at in range(3)]
    assert (len(source.granted), pool.busy) == (1, 1)
    pool.release(lease)
    await all_closed(pool, source)


async def test_a_new_slot_goes_to_who_waits_longest(background: Background) -> None:
    """Whoever's call it was that brought it."""
    source = Source(0)
    pool = pool_of(source, background)
    async with asyncio.TaskGroup() as group:
        waiters = await waiting(group, pool, source, 3)
        for number, waiter in enumerate(waiters):
            source.add(1)
            assert (await waiter).slot.url == f"http://{number}"
            assert [one.done() for one in waiters] == [at <= number for at in range(3)]
    for waiter in waiters:
        pool.release(waiter.result())
    await all_closed(pool, source)


async def test_who_comes_later_does_not_jump_the_queue(background: Background) -> None:
    """A slot that is returned while someone waits is not there for a newcomer."""
    source = Source(1)
    pool = pool_of(source, background)
    lease = await pool.lease(timeout_s=FOREVER_S)
    async with asyncio.TaskGroup() as group:
        (first,) = await waiting(group, pool, source)
        pool.release(lease)
        second = group.create_task(pool.lease(timeout_s=FOREVER_S))
        assert await first is lease
        assert not second.done()
        pool.release(lease)
    pool.release(second.result())
    await all_closed(pool, source)


async def test_calls_do_not_pile_up_while_slots_are_handed_over(background: Background) -> None:
    """A full provider is asked once for each who waits, not once for each request there was."""
    source = Source(1)
    pool = pool_of(source, background)
    lease = await pool.lease(timeout_s=FOREVER_S)
    async with asyncio.TaskGroup() as group:
        (following,) = await waiting(group, pool, source)
        for _ in range(50):
            (next_one,) = await waiting(group, pool, source)
            pool.release(lease)
            lease, following = await following, next_one
            assert source.queued <= 2
        pool.release(lease)
    pool.release(following.result())
    assert source.asked <= 3
    await all_closed(pool, source)


async def test_a_burst_is_served_in_order_and_leaves_nothing(background: Background) -> None:
    """A hundred requests on ten slots: all served, first come first served, all closed."""
    source = Source(10)
    pool = pool_of(source, background, idle_s=IDLE_S)
    served: list[int] = []

    async def request(number: int) -> None:
        lease = await pool.lease(timeout_s=FOREVER_S)
        served.append(number)
        await let_go_on()
        pool.release(lease)

    async with asyncio.TaskGroup() as group:
        for number in range(100):
            group.create_task(request(number))
    assert served == list(range(100))
    assert (source.most, len(source.granted)) == (10, 10)
    await until(lambda: source.open_now == 0)
    assert (source.queued, source.free, pool.busy) == (0, 10, 0)
