"""The Provider deployment: one replica is the right to use one upstream, in slots.

A slot is a call to `acquire` that stays open: so Serve's router, its limit on ongoing requests,
its queue, its autoscaling and its draining see each slot as the request that it is. The tokens
themselves never pass through here.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator
from typing import Final
from urllib.parse import urlsplit

import aiohttp
from ray import serve

from deployments import providers
from serve_app import config
from serve_app.runs import Slot

logger = logging.getLogger("ray.serve.edge")

_PROBE_S: Final = 5.0
_PROBE_TIMEOUT_S: Final = 5.0


@serve.deployment(
    name="Provider",
    ray_actor_options={"num_cpus": 0},
    health_check_period_s=5,
    graceful_shutdown_timeout_s=60,
)
class ProviderReplica:
    """One replica of one provider.

    Args:
        text: The configuration as it stands in its file; this host's environment is put in here.
        name: Which of its providers this is.
    """

    async def __init__(self, text: str, name: str) -> None:
        settings = config.load(text, types=providers.names())
        provider = settings.provider(name)
        kind = providers.load(provider.type)
        key = provider.api_key.get_secret_value()
        self._name = name
        self._headers = {"authorization": f"Bearer {key}"} if key else {}
        self._trouble = ""
        self._url = str(provider.url).rstrip("/")
        self._probe_url = _probe_url(self._url, kind.facts.health_path)
        self._probing = asyncio.get_running_loop().create_task(self._probe(), name="probe")

    async def acquire(self) -> AsyncGenerator[Slot]:
        """Grant a slot, which lasts until the caller ends this call."""
        yield Slot(self._name, self._url, self._headers, self._trouble)
        await asyncio.Event().wait()

    async def _probe(self) -> None:
        """Ask the upstream how it is, again and again."""
        limit = aiohttp.ClientTimeout(total=_PROBE_TIMEOUT_S)
        async with aiohttp.ClientSession(headers=self._headers, timeout=limit) as session:
            while True:
                trouble = await _trouble(session, self._probe_url)
                if trouble != self._trouble:
                    logger.info("upstream of '%s': %s", self._name, trouble or "well")
                self._trouble = trouble
                await asyncio.sleep(_PROBE_S)


async def _trouble(session: aiohttp.ClientSession, url: str) -> str:
    """Why an upstream seems to be out of order; empty while it is well."""
    try:
        async with session.get(url, allow_redirects=False) as response:
            return "" if response.status < 500 else f"its health answers {response.status}"
    except TimeoutError:
        return f"its health did not answer within {_PROBE_TIMEOUT_S:g} s"
    except (aiohttp.ClientError, OSError):
        return "it cannot be reached"


def _probe_url(url: str, health_path: str) -> str:
    """Where to ask: the type's health path from the server's root, else the list of models."""
    if not health_path:
        return f"{url}/models"
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.netloc}{health_path}"
