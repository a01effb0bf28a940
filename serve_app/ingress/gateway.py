"""What every endpoint works with: the settings of the moment, the providers, the client."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from serve_app.catalog import Catalog
from serve_app.config import Settings
from serve_app.ingress.access_log import AccessLog, LoggerAccessLog
from serve_app.runs import ProviderFacts
from serve_app.upstream.background import Background
from serve_app.upstream.client import UpstreamClient
from serve_app.upstream.slots import SlotPool, SlotSource


@dataclass(frozen=True, slots=True)
class Current:
    """One configuration. A request takes it once and keeps it to its end."""

    settings: Settings
    catalog: Catalog


@dataclass(frozen=True, slots=True)
class ProviderLink:
    """One provider as the ingress knows it."""

    name: str
    facts: ProviderFacts
    source: SlotSource


class Readiness(Protocol):
    """Tells what is still missing before every route can be served."""

    async def missing(self) -> dict[str, str]:
        """Provider → why it cannot serve yet; empty once all can."""
        ...


class Gateway:
    """The ingress's parts, put together once a replica.

    Args:
        settings: The configuration to begin with.
        links: Every provider of the configuration, by its name.
        readiness: Who knows whether the providers can serve.
        access_log: Where each request is noted; by default Python's logging.
        watches_callers: False where the server cancels the work of a caller who leaves.
    """

    def __init__(
        self,
        settings: Settings,
        links: Mapping[str, ProviderLink],
        readiness: Readiness,
        access_log: AccessLog | None = None,
        *,
        watches_callers: bool = True,
    ) -> None:
        self.current = Current(settings, Catalog(settings))
        self.readiness = readiness
        self.watches_callers = watches_callers
        self.access_log = access_log or LoggerAccessLog()
        self._works: list[Callable[[], Coroutine[Any, Any, None]]] = []
        self.background = Background()
        self.client = UpstreamClient(self.background)
        self.facts = {name: link.facts for name, link in links.items()}
        self.pools = {
            name: SlotPool(name, link.source, self.background) for name, link in links.items()
        }

    def when_started(self, work: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Name work that runs beside the requests for as long as the ingress lives."""
        self._works.append(work)

    async def start(self) -> None:
        """Open what needs a running loop."""
        await self.client.start()
        for work in self._works:
            self.background.start(work(), name=getattr(work, "__name__", "work"))

    async def close(self) -> None:
        """Give back the slots and close the connections."""
        for pool in self.pools.values():
            pool.close()
        await self.client.close()
        await self.background.close()
        self.access_log.close()

    def use(self, settings: Settings) -> None:
        """Serve by another configuration from the next request on."""
        self.current = Current(settings, Catalog(settings))

    def load(self, provider: str) -> float:
        """Busy slots of a provider as a share of what one replica of it has."""
        slots = self.current.settings.provider(provider).slots
        return self.pools[provider].busy / slots
