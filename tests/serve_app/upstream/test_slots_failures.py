"""The pool of slots where something goes wrong: nobody is forgotten and no slot is lost."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncGenerator

import pytest

from serve_app.errors import Code, GatewayError, OverloadedError, UpstreamUnavailableError
from serve_app.upstream.background import Background
from serve_app.upstream.slots import Lease, SlotPool
from tests.serve_app.upstream.slot_source import Source, all_closed, let_go_on, until

FOREVER_S = 60.0
DOWN = UpstreamUnavailableError("down")
FULL = OverloadedError("full")


@pytest.fixture
async def background() -> AsyncGenerator[Background]:
    owner = Background()
    yield owner
    await owner.close()


def pool_of(source: Source, background: Background) -> SlotPool:
    return SlotPool("p", source, background, idle_s=FOREVER_S, max_age_s=FOREVER_S)


async def outcome(pool: SlotPool, timeout_s: float = FOREVER_S) -> Lease | GatewayError:
    """What comes of asking for a slot."""
    try:
        return await pool.lease(timeout_s=timeout_s)
    except GatewayError as error:
        return error


@pytest.mark.parametrize(
    ("error", "told"), [pytest.param(DOWN, 0, id="down"), pytest.param(FULL, 2, id="full")]
)
async def test_a_failure_reaches_exactly_one(
    background: Background, error: GatewayError, told: int
) -> None:
    """Who waits longest; but a full queue is the fault of who came last."""
    source = Source(0)
    pool = pool_of(source, background)
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(outcome(pool)) for _ in range(3)]
        await until(lambda: source.queued == 3)
        source.fail(error)
        assert await tasks[told] is error
        assert [task.done() for task in tasks].count(True) == 1
        source.add(2)
    for task in tasks:
        if task is not tasks[told]:
            lease = task.result()
            assert isinstance(lease, Lease)
            pool.release(lease)
    await all_closed(pool, source)


async def test_everyone_hears_of_it_where_all_calls_fail(background: Background) -> None:
    """As many failures as there are calls: nobody waits for ever."""
    source = Source(0)
    pool = pool_of(source, background)
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(outcome(pool)) for _ in range(20)]
        await until(lambda: source.queued == 20)
        for number in range(20):
            source.fail(FULL if number % 3 else DOWN)
    results = [task.result() for task in tasks]
    assert (results.count(DOWN), results.count(FULL)) == (7, 13)
    await all_closed(pool, source)


async def test_who_comes_right_after_a_failure_is_asked_for(background: Background) -> None:
    """A call that has failed is not one to wait for."""
    source = Source(0)
    pool = pool_of(source, background)

    async def persistent() -> Lease | GatewayError:
        first = await outcome(pool)
        assert first is DOWN
        return await outcome(pool)

    async with asyncio.TaskGroup() as group:
        task = group.create_task(persistent())
        await until(lambda: source.queued == 1)
        source.fail(DOWN)
        await until(lambda: source.asked == 2)
        source.add(1)
    lease = task.result()
    assert isinstance(lease, Lease)
    pool.release(lease)
    await all_closed(pool, source)


# Waiting in vain


async def test_who_waits_too_long_is_told_to_come_again(background: Background) -> None:
    """429 with a time to wait; the call is withdrawn."""
    source = Source(0)
    pool = pool_of(source, background)
    error = await outcome(pool, timeout_s=0.01)
    assert isinstance(error, OverloadedError)
    assert (error.status, error.code, error.provider) == (429, Code.OVERLOADED, "p")
    assert error.retry_after_s
    await until(lambda: source.withdrawn == 1)
    await all_closed(pool, source)


async def test_who_leaves_takes_only_its_own_call_along(background: Background) -> None:
    """The others keep their places, and one call each."""
    source = Source(0)
    pool = pool_of(source, background)
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(outcome(pool)) for _ in range(5)]
        await until(lambda: source.queued == 5)
        for number in (0, 2, 3):
            tasks[number].cancel()
        await until(lambda: source.queued == 2)
        source.add(5)
        served = [await tasks[1], await tasks[4]]
    assert (source.withdrawn, len(source.granted)) == (3, 2)
    for lease in served:
        assert isinstance(lease, Lease)
        pool.release(lease)
    await all_closed(pool, source)


@pytest.mark.parametrize("others", [0, 1], ids=["alone", "with-another"])
@pytest.mark.parametrize("steps", range(7))
async def test_who_leaves_while_a_slot_is_on_its_way_loses_none(
    background: Background, steps: int, others: int
) -> None:
    """Before, at and after the grant: the slot goes to the next, or to the idle ones."""
    source = Source(0)
    pool = pool_of(source, background)
    async with asyncio.TaskGroup() as group:
        leaving = group.create_task(outcome(pool))
        await until(lambda: source.queued == 1)
        staying = [group.create_task(outcome(pool)) for _ in range(others)]
        await until(lambda: source.queued == 1 + others)
        source.add(1)
        await let_go_on(steps)
        leaving.cancel()
        await asyncio.wait([leaving])
        if not leaving.cancelled():
            lease = leaving.result()
            assert isinstance(lease, Lease)
            pool.release(lease)
        held = [await task for task in staying]
    for lease in held:
        assert isinstance(lease, Lease)
        pool.release(lease)
    await all_closed(pool, source)
    assert source.free == 1


@pytest.mark.parametrize("steps", range(4))
async def test_who_leaves_while_a_slot_is_handed_over_loses_none(
    background: Background, steps: int
) -> None:
    """What it was just given goes to the next who waits."""
    source = Source(1)
    pool = pool_of(source, background)
    lease = await pool.lease(timeout_s=FOREVER_S)
    async with asyncio.TaskGroup() as group:
        leaving, staying = [group.create_task(outcome(pool)) for _ in range(2)]
        await until(lambda: source.queued == 2)
        pool.release(lease)
        await let_go_on(steps)
        leaving.cancel()
        await asyncio.wait([leaving])
        if not leaving.cancelled():
            assert leaving.result() is lease
            pool.release(lease)
        assert await staying is lease
    assert pool.busy == 1
    pool.release(lease)
    await all_closed(pool, source)


# The other side


async def test_an_idle_slot_that_ends_leaves_at_once(background: Background) -> None:
    """A dead replica's slot is not given to the next request."""
    source = Source(1)
    pool = pool_of(source, background)
    pool.release(await pool.lease(timeout_s=FOREVER_S))
    source.granted[0].end()
    await until(lambda: source.granted[0].closed)
    lease = await pool.lease(timeout_s=FOREVER_S)
    assert lease.slot.url == "http://1"
    pool.release(lease)
    await all_closed(pool, source)


async def test_a_slot_that_ends_at_work_is_not_kept(background: Background) -> None:
    """At its return it is gone, and who waits gets a new one."""
    source = Source(1)
    pool = pool_of(source, background)
    lease = await pool.lease(timeout_s=FOREVER_S)
    async with asyncio.TaskGroup() as group:
        waiter = group.create_task(outcome(pool))
        await until(lambda: source.queued == 1)
        source.granted[0].end()
        following = await waiter
    assert isinstance(following, Lease)
    assert following.slot.url == "http://1"
    pool.release(lease)
    pool.release(following)
    assert await pool.lease(timeout_s=FOREVER_S) is following
    pool.release(following)
    await all_closed(pool, source)


async def test_a_slot_that_ends_on_its_way_is_not_handed_on(background: Background) -> None:
    """Given to one who leaves and ended meanwhile, it is no slot for the next."""
    source = Source(1)
    pool = pool_of(source, background)
    lease = await pool.lease(timeout_s=FOREVER_S)
    async with asyncio.TaskGroup() as group:
        leaving, staying = [group.create_task(outcome(pool)) for _ in range(2)]
        await until(lambda: source.queued == 2)
        source.granted[0].end()
        pool.release(lease)
        leaving.cancel()
        following = await staying
    assert isinstance(following, Lease)
    assert not following.ended
    assert following.slot.url == "http://1"
    pool.release(following)
    await all_closed(pool, source)


async def test_the_end_of_the_background_closes_all(background: Background) -> None:
    """Idle, at work or asked for: at shutdown every slot is given back."""
    source = Source(2)
    pool = pool_of(source, background)
    await pool.lease(timeout_s=FOREVER_S)
    pool.release(await pool.lease(timeout_s=FOREVER_S))
    async with asyncio.TaskGroup() as group:
        await pool.lease(timeout_s=FOREVER_S)
        waiter = group.create_task(outcome(pool))
        await until(lambda: source.queued == 1)
        await background.close()
        waiter.cancel()
    assert (source.open_now, source.queued, source.free) == (0, 0, 2)


# Everything at once


@pytest.mark.parametrize("seed", range(20))
async def test_nothing_is_lost_whatever_happens(background: Background, seed: int) -> None:
    """Hundreds of requests that come, leave, fail and end by chance: in the end all is given back.

    Each gets a slot, an error or its own cancellation; nobody waits for ever.
    """
    chance = random.Random(seed)
    source = Source(3)
    pool = pool_of(source, background)

    async def request() -> None:
        result = await outcome(pool, timeout_s=chance.choice([FOREVER_S, 0.001]))
        if isinstance(result, GatewayError):
            return
        try:
            await let_go_on(chance.randrange(4))
        finally:
            pool.release(result, reuse=chance.random() < 0.8)

    async def mishaps(tasks: list[asyncio.Task[None]]) -> None:
        while not all(task.done() for task in tasks):
            await let_go_on()
            kind = chance.random()
            if kind < 0.2:
                chance.choice(tasks).cancel()
            elif kind < 0.3 and source.queued:
                source.fail(chance.choice([DOWN, FULL]))
            elif kind < 0.4 and source.granted:
                source.granted[-1].end()

    async with asyncio.timeout(20), asyncio.TaskGroup() as group:
        tasks: list[asyncio.Task[None]] = []
        group.create_task(mishaps(tasks))
        for _ in range(300):
            tasks.append(group.create_task(request()))
            await let_go_on(chance.randrange(3))
    assert source.most <= 3
    await all_closed(pool, source)
    assert source.free == 3
