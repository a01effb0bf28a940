"""The Ingress deployment: the ASGI application inside Ray Serve."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from ray import serve
from ray.serve.schema import DeploymentStatusOverview
from starlette.types import ASGIApp

from serve_app import config
from serve_app.errors import GatewayError
from serve_app.ingress.access_log import serve_access_log
from serve_app.ingress.api import build_api
from serve_app.ingress.gateway import Gateway, ProviderLink
from serve_app.ingress.reload import ConfigFile
from serve_app.runs import ProviderFacts
from serve_app.upstream.handles import HandleSource
from serve_app.upstream.slots import SlotPool

_CACHE_S: Final = 1.0
_SLOT_WAIT_S: Final = 2.0

logger = logging.getLogger("ray.serve.edge")


class ServeReadiness:
    """Asks Serve about the deployments and the providers about themselves."""

    def __init__(self, app_name: str) -> None:
        self._app_name = app_name
        self._pools: Mapping[str, SlotPool] = {}
        self._idle_allowed: frozenset[str] = frozenset()
        self._asked_at = 0.0
        self._missing: dict[str, str] = {}
        self._lock = asyncio.Lock()
        self._told: dict[str, str] = {}

    def attach(self, pools: Mapping[str, SlotPool], idle_allowed: frozenset[str]) -> None:
        """Say which providers there are, and which of them may have no replica."""
        self._pools = pools
        self._idle_allowed = idle_allowed

    async def missing(self) -> dict[str, str]:
        """Provider → why it cannot serve yet. Asked at most once a second."""
        async with self._lock:
            if time.monotonic() - self._asked_at > _CACHE_S:
                self._missing = await self._ask()
                self._asked_at = time.monotonic()
            return self._missing

    async def _ask(self) -> dict[str, str]:
        status = await asyncio.to_thread(serve.status)
        app = status.applications.get(self._app_name)
        deployments = app.deployments if app is not None else {}
        missing: dict[str, str] = {}
        for name, pool in self._pools.items():
            reason = self._unready(name, deployments.get(f"provider-{name}"))
            if reason is None and name not in self._idle_allowed:
                reason = await _trouble(pool)
            if reason is not None:
                missing[name] = reason
        return missing

    def _unready(self, name: str, overview: DeploymentStatusOverview | None) -> str | None:
        """Why Serve does not have a deployment where it should be.

        `/readyz` is open to all, so it tells the state; Serve's words, tracebacks among them, are
        for the log, once each.
        """
        if overview is None:
            return "not deployed yet"
        # Declared as an enumeration, and a plain string where it comes from the controller.
        states: Mapping[object, int] = {**overview.replica_states}
        counts = {str(getattr(state, "value", state)): count for state, count in states.items()}
        if overview.status == "HEALTHY" or counts.get("RUNNING"):
            return None
        if overview.message and overview.message != self._told.get(name):
            self._told[name] = overview.message
            logger.warning("provider '%s' is not running: %s", name, overview.message)
        shown = ", ".join(f"{count} {word.lower()}" for word, count in counts.items())
        return shown or str(overview.status).lower()


async def _trouble(pool: SlotPool) -> str | None:
    """What a replica says of its upstream; a provider whose slots are all busy is well."""
    if pool.busy:
        return None
    try:
        lease = await pool.lease(timeout_s=_SLOT_WAIT_S)
    except GatewayError as error:
        logger.info("no slot to ask for the health of an upstream: %s", error.message)
        return f"no slot ({error.code.value})"
    trouble = lease.slot.trouble
    pool.release(lease)
    return trouble or None


@serve.deployment(
    name="Ingress",
    ray_actor_options={"num_cpus": 0},
    health_check_period_s=5,
    graceful_shutdown_timeout_s=60,
)
@serve.ingress()  # pyright: ignore[reportUntypedClassDecorator]
class Ingress:
    """One ingress replica.

    Args:
        text: The configuration as it stands in its file, variables not yet put in.
        path: The file, watched for changes where this replica's host has it.
        links: Provider → its facts and the handle to its deployment.
        types: The known provider types.
    """

    def __init__(
        self,
        text: str,
        path: str,
        links: dict[str, tuple[ProviderFacts, Any]],
        types: tuple[str, ...],
    ) -> None:
        file = ConfigFile(Path(path), text, types)
        # What the file says now, not what it said at the deployment: a token that was changed
        # since must not be good again because a replica starts anew.
        settings = config.load(text, types=types)
        replica = serve.get_replica_context()
        readiness = ServeReadiness(replica.app_name)
        self._gateway = Gateway(
            settings,
            {
                name: ProviderLink(name, facts, HandleSource(name, handle))
                for name, (facts, handle) in links.items()
            },
            readiness,
            serve_access_log(f"{replica.app_name}_{replica.deployment}_{replica.replica_tag}"),
            watches_callers=False,
        )
        idle = {p.name for p in settings.providers if p.autoscaling.min == 0}
        readiness.attach(self._gateway.pools, frozenset(idle))
        for warning in settings.warnings(_always_thinking(links)):
            logger.warning("%s: %s", path, warning)
        file.take_over(self._gateway)
        self._gateway.when_started(lambda: file.watch(self._gateway))

    def __serve_build_asgi_app__(self) -> ASGIApp:
        """Give Serve the application, once a replica."""
        return build_api(self._gateway, echo_request_id=False)


def _always_thinking(links: Mapping[str, tuple[ProviderFacts, Any]]) -> set[str]:
    """Types among the providers that cannot be told to answer without thinking."""
    facts = [one for one, _ in links.values()]
    return {one.type for one in facts if one.think is not None and one.think.off is None}
