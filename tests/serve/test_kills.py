"""What callers see when a part of the product is killed, and what is left when they leave."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from tests.fakes.product import Product, ask, wait_for
from tests.fakes.upstream import Upstream

pytestmark = pytest.mark.serve

#: Some hundredths of a second where nothing else runs, and a second by the clause; a machine that
#: is busy with other things gets more.
BUSY_S = 3.0

STORY = [{"role": "user", "content": "Tell a very long story about a dog and a cat."}]


def _events(answer: httpx.Response) -> Iterator[str]:
    for line in answer.iter_lines():
        if line.startswith("data: "):
            yield line.removeprefix("data: ")


@pytest.mark.clause("ERR-1")
@pytest.mark.parametrize(
    ("model", "victim"),
    [
        ("smollm2", "llama_server.py"),
        ("smollm2", "ServeReplica:edge:provider-local"),
    ],
    ids=["engine", "provider replica"],
)
def test_a_killed_engine_ends_the_stream_with_an_error(
    product: Product, model: str, victim: str
) -> None:
    """Within a second of the kill comes an error event and no [DONE]; the next request works."""
    body = {"model": model, "messages": STORY, "stream": True, "max_tokens": 900}
    with httpx.stream("POST", f"{product.api}/chat/completions", json=body, timeout=60) as answer:
        events = _events(answer)
        for _ in range(5):
            next(events)
        product.kill(victim)
        killed = time.monotonic()
        rest = list(events)
    assert time.monotonic() - killed < BUSY_S
    assert '"error"' in rest[-1]
    assert "[DONE]" not in rest
    assert ask(product.api, model, max_tokens=4).status_code == 200


def test_a_killed_ingress_breaks_its_streams_and_comes_back(product: Product) -> None:
    """The connection breaks at once instead of ending well; the next request is answered."""
    body = {"model": "paced", "messages": STORY, "stream": True}
    with httpx.stream("POST", f"{product.api}/chat/completions", json=body, timeout=60) as answer:
        events = _events(answer)
        for _ in range(5):
            next(events)
        product.kill("ServeReplica:edge:Ingress")
        killed = time.monotonic()
        with pytest.raises(httpx.RemoteProtocolError):
            list(events)
    assert time.monotonic() - killed < BUSY_S
    assert ask(product.api, "fake").status_code == 200


@pytest.mark.clause("CHAT-7")
@pytest.mark.parametrize("stream", [True, False], ids=["stream", "whole"])
async def test_callers_who_leave_leave_nothing_behind(
    product: Product, upstream: Upstream, *, stream: bool
) -> None:
    """A second after 200 callers have gone, nothing runs at the upstream for them."""
    ask(product.api, "fake")
    ingress = product.find("ServeReplica:edge:Ingress")[0]
    before = ingress.num_fds()
    body: dict[str, Any] = {"model": "paced", "messages": STORY, "stream": stream}
    limits = httpx.Limits(max_connections=300)
    async with httpx.AsyncClient(limits=limits, timeout=60) as client:

        async def call() -> None:
            url = f"{product.api}/chat/completions"
            async with client.stream("POST", url, json=body) as answer:
                async for _ in answer.aiter_bytes():
                    pass

        loop = asyncio.get_running_loop()
        calls = [loop.create_task(call()) for _ in range(200)]
        await upstream.until(lambda one: one.active == 200, 20)
        for one in calls:
            one.cancel()
        await asyncio.gather(*calls, return_exceptions=True)
    await upstream.until(lambda one: one.active == 0, BUSY_S)
    await asyncio.to_thread(wait_for, lambda: ingress.num_fds() <= before + 2, 15)
