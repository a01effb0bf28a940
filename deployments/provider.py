"""The Provider deployment: one replica is the right to use one upstream, in slots.

A slot is a call to `acquire` that stays open: so Serve's router, its limit on ongoing requests,
its queue, its autoscaling and its draining see each slot as the request that it is. The tokens
themselves never pass through here.
"""

from __future__ import annotations

import asyncio
import logging
import sys
from collections.abc import AsyncGenerator
from typing import Final, cast
from urllib.parse import urlsplit

import aiohttp
import ray.util
from ray import serve

from deployments import providers
from deployments.engine import EngineProcess
from deployments.providers import ProviderType
from serve_app import config
from serve_app.config import Provider
from serve_app.errors import ConfigError
from serve_app.runs import UPSTREAM_DOWN, Slot

logger = logging.getLogger("ray.serve.edge")

_PROBE_S: Final = 5.0
#: How long an engine that died may take to come back before a caller or Serve hears of it.
_READY_S: Final = 20.0
#: Ray's own secret, which a model server has no use for.
_NOT_FOR_ENGINES: Final = ("RAY_AUTH_TOKEN",)
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
        self._engine: EngineProcess | None = None
        if provider.url is not None:
            self._url = str(provider.url).rstrip("/")
            work = self._probe(_probe_url(self._url, kind.facts.health_path))
            self._probing = asyncio.get_running_loop().create_task(work, name="probe")
            return
        self._engine = _engine(provider, kind, withhold={*settings.variables, *_NOT_FOR_ENGINES})
        await self._engine.start()
        try:
            await self._engine.wait_ready()
        except BaseException:
            await self._engine.stop()
            raise

    async def acquire(self) -> AsyncGenerator[Slot]:
        """Grant a slot, which lasts until the caller ends this call or the engine dies.

        Raises:
            NotReadyError: The engine died and does not come back.
        """
        engine = self._engine
        if engine is None:
            yield Slot(self._name, self._url, self._headers, self._trouble)
            await asyncio.Event().wait()
            return
        await engine.wait_ready(_READY_S)
        generation = engine.generation
        yield Slot(self._name, engine.url, engine.headers)
        await engine.wait_ended(generation)

    async def check_health(self) -> None:
        """Serve asks this: a replica whose engine does not come back is replaced.

        Raises:
            NotReadyError: The engine is not well.
        """
        if self._engine is not None:
            await self._engine.wait_ready(_READY_S)

    async def __del__(self) -> None:
        """Serve calls this at a replica's orderly end."""
        if self._engine is not None:
            await self._engine.stop()

    async def _probe(self, url: str) -> None:
        """Ask the upstream how it is, again and again."""
        limit = aiohttp.ClientTimeout(total=_PROBE_TIMEOUT_S)
        async with aiohttp.ClientSession(headers=self._headers, timeout=limit) as session:
            while True:
                trouble = await _trouble(session, url)
                if trouble != self._trouble:
                    logger.info("upstream of '%s': %s", self._name, trouble or "well")
                self._trouble = trouble
                await asyncio.sleep(_PROBE_S)


def _engine(provider: Provider, kind: ProviderType, *, withhold: set[str]) -> EngineProcess:
    """The engine of a provider, not yet started. It listens where the ingress can reach it.

    Raises:
        ConfigError: The type has no engine.
    """
    command, engine = kind.command, provider.engine
    if command is None or engine is None:
        raise ConfigError([f"provider '{provider.name}': '{provider.type}' has no engine"])
    host = config.engine_host() or cast("str", ray.util.get_node_ip_address())

    def words(port: int) -> list[str]:
        return command(engine, slots=provider.slots, host=host, port=port, python=sys.executable)

    return EngineProcess(
        provider.name,
        words,
        engine,
        host=host,
        health_path=kind.facts.health_path,
        withhold=withhold,
    )


async def _trouble(session: aiohttp.ClientSession, url: str) -> str:
    """Why an upstream seems to be out of order; empty while it is well."""
    try:
        async with session.get(url, allow_redirects=False) as response:
            return (
                ""
                if response.status < 500
                else f"{UPSTREAM_DOWN} answers {response.status} to a health check"
            )
    except TimeoutError:
        return f"{UPSTREAM_DOWN} did not answer a health check within {_PROBE_TIMEOUT_S:g} s"
    except (aiohttp.ClientError, OSError):
        return f"{UPSTREAM_DOWN} cannot be reached"


def _probe_url(url: str, health_path: str) -> str:
    """Where to ask: the type's health path from the server's root, else the list of models."""
    if not health_path:
        return f"{url}/models"
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.netloc}{health_path}"
